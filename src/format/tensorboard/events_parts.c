/* events_parts.c - what goes into event files and is made elsewhere: PNG
 * images through libpng, and the graph of a model. */
#include <png.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/vec.h"
#include "format/codec/proto.h"
#include "format/tensorboard/events.h"
#include "nn/graph.h"

manta_status events_png(int64_t height, int64_t width, int64_t channels, const uint8_t *pixels, buf *b)
{
    png_image p = {.version = PNG_IMAGE_VERSION,
                   .width = (png_uint_32)width,
                   .height = (png_uint_32)height,
                   .format = channels == 1   ? PNG_FORMAT_GRAY
                             : channels == 3 ? PNG_FORMAT_RGB
                                             : PNG_FORMAT_RGBA};
    png_alloc_size_t n = PNG_IMAGE_PNG_SIZE_MAX(p);

    TRY(buf_try_reserve(b, n, "a PNG image"));
    if (!png_image_write_to_memory(&p, b->at + b->n, &n, 0, pixels, 0, NULL)) {
        manta_status st = manta_fail(MANTA_EIO, "a PNG image cannot be made: %s", p.message);
        png_image_free(&p);
        return st;
    }
    b->n += n;
    b->at[b->n] = '\0';
    return MANTA_OK;
}

/* ---- the graph ------------------------------------------------------------------------ */

typedef struct naming {
    MAP(int) used;
    char **values; /* per value: the node it comes from, ":1" behind it for a second output; owned */
} naming;

/* A node's name that no other has, copied. */
static char *unique_name(naming *g, const char *name)
{
    char *text = mem_strdup(name);

    for (int i = 1; map_find(&g->used, text); i++) {
        mem_free(text);
        text = mem_printf("%s_%d", name, i);
    }
    *map_put(&g->used, text) = 1;
    return text;
}

/* So that the page writes them beside the edges. */
static void add_shape(buf *b, int ndim, const int64_t *shape)
{
    size_t entry = proto_begin(b, 5), value, list, s, dim;

    proto_add_text(b, 1, "_output_shapes");
    value = proto_begin(b, 2);
    list = proto_begin(b, 1);
    s = proto_begin(b, 7);
    for (int i = 0; i < ndim; i++) {
        dim = proto_begin(b, 2);
        proto_add_int(b, 1, shape[i]);
        proto_end(b, dim);
    }
    proto_end(b, s);
    proto_end(b, list);
    proto_end(b, value);
    proto_end(b, entry);
}

/* A node without inputs that makes value v. */
static void add_leaf(buf *b, naming *g, const manta_model *m, const char *name, const char *op, int v)
{
    size_t node = proto_begin(b, 1);

    g->values[v] = unique_name(g, name);
    proto_add_text(b, 1, g->values[v]);
    proto_add_text(b, 2, op);
    add_shape(b, m->values[v].a.ndim, m->values[v].a.shape);
    proto_end(b, node);
}

static void add_node(buf *b, naming *g, const manta_model *m, const graph_node *n)
{
    const char *layer = n->layer >= 0 ? m->layers[n->layer]->name : NULL;
    char *name = layer ? mem_printf("%s/%s", layer, n->op->name) : mem_strdup(n->op->name);
    char *own = unique_name(g, name);
    size_t node = proto_begin(b, 1);

    proto_add_text(b, 1, own);
    proto_add_text(b, 2, n->op->name);
    for (int i = 0; i < n->n_in; i++) {
        if (g->values[n->in[i]]) proto_add_text(b, 3, g->values[n->in[i]]);
    }
    add_shape(b, m->values[n->out[0]].a.ndim, m->values[n->out[0]].a.shape);
    proto_end(b, node);
    for (int i = 0; i < n->n_out; i++) {
        g->values[n->out[i]] = i ? mem_printf("%s:%d", own, i) : mem_strdup(own);
    }
    mem_free(own);
    mem_free(name);
}

void events_graph_def(const manta_model *m, buf *b)
{
    naming g = {.values = mem_new((size_t)(m->n_values + 1) * sizeof *g.values)};

    for (int i = 0; i < m->n_inputs; i++) {
        const char *name = m->inputs[i].name ? m->inputs[i].name : "input";
        add_leaf(b, &g, m, name, "Placeholder", m->inputs[i].value);
    }
    for (int i = 0; i < m->n_variables; i++) {
        add_leaf(b, &g, m, m->variables[i].name, "Variable", m->variables[i].value);
    }
    for (int i = 0; i < m->n_nodes; i++) add_node(b, &g, m, &m->nodes[i]);
    size_t versions = proto_begin(b, 4);
    proto_add_int(b, 1, 22); /* what producers of this form of graph have written for years */
    proto_end(b, versions);

    for (int i = 0; i < m->n_values; i++) mem_free(g.values[i]);
    mem_free(g.values);
    map_release(&g.used);
}
