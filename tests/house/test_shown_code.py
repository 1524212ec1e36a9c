"""The examples in the comments of the public headers compile; the loss and the metric of docs/extending.md train.

The convention: in a comment of a header, lines indented by four blanks more than its text are a block; one of its lines
ends in ";", "{" or "}" when the block is C. A block with a brace in its first column is of file scope, another one is
the body of a function that returns a manta_status. Inside, // begins a remark."""
import pathlib
import re
import tempfile
import unittest

import interface
from support import BUILD, ROOT, run

# Compiled, not only parsed: gcc sees a status that is dropped on the way to code.
FLAGS = ["-std=c11", "-pedantic", "-c", "-o", "/dev/null", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-D_DEFAULT_SOURCE",
         "-Werror=unused-result", f"-I{ROOT}/include"]

# What the program around an example has, by header.
AROUND = {
    "callback.h": "extern manta_session *s; extern manta_dataset *d;",
    "cluster.h": "extern manta_model *model; extern manta_compile compile; extern manta_dataset *data;"
                 "extern manta_fit_options fit;",
    "code.h": "extern const void *bytes; extern size_t n; extern manta_arg args[3];",
    "comm.h": "extern float *x; extern int64_t n;",
    "data.h": "extern manta_column columns[2]; extern uint64_t seed; void use(const manta_batch *b);",
    "events.h": "extern int64_t step;",
    "nursery.h": "#include <stdio.h>\nmanta_status prepare_worker(void *user, const char *environment);",
    "object.h": "#include <stdio.h>\nextern manta_array array; extern double v;",
    "packed.h": "extern float weights[6], bias[2]; extern manta_task_fn apply;",
    "strategy.h": "extern float *g; extern int64_t n; void gradient(manta_replica *r, const manta_array *w, float *g);"
                  "void update(const manta_array *w, const float *g);",
    "trainer.h": "typedef struct settings { int64_t epochs; } settings; extern manta_model *model;"
                 "extern manta_compile compile; extern manta_loader_options loading;",
    "watch.h": "extern manta_ref ref; void loop_until_readable(int fd);",
}

# Learns the 0.9 quantile of numbers that do not depend on the input; the gradient is held against differences.
QUANTILE = r"""
#include <math.h>
#include <manta.h>
#include <stdio.h>
%s
static manta_status train(void)
{
    enum { N = 400 };
    static float x[N], y[N], w[2], g[2];
    double up, down;
    manta_metrics m;
    manta_session *s;
    manta_model *model = manta_model_new("quantile");
    manta_feed f = {.count = N, .n_inputs = 1, .n_targets = 1};
    manta_input(model, "x", MANTA_DTYPE_F32, 1, (int64_t[]){1});
    manta_model_add(model, manta_dense(model, (manta_dense_options){.units = 1}));
    for (int i = 0; i < N; i++) x[i] = (float)(i %% 7) / 7, y[i] = (float)((i * 37) %% N) / N;
    f.inputs[0] = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){N, 1}, x);
    f.targets[0] = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){N, 1}, y);
    MANTA_TRY(manta_model_build(model));
    MANTA_TRY(manta_session_open(model, &how, NULL, &s));
    if (manta_session_params(s) != 2) return manta_fail(MANTA_EINTERNAL, "expected two weights");
    manta_session_get_flat(s, w);
    MANTA_TRY(manta_session_loss(s, &f, &up));
    MANTA_TRY(manta_session_backward(s, &f));
    MANTA_TRY(manta_session_gradients(s, g));
    for (int i = 0; i < 2; i++) {
        float v[2] = {w[0], w[1]};
        v[i] = w[i] + 1e-3f;
        manta_session_set_flat(s, v);
        MANTA_TRY(manta_session_loss(s, &f, &up));
        v[i] = w[i] - 1e-3f;
        manta_session_set_flat(s, v);
        MANTA_TRY(manta_session_loss(s, &f, &down));
        if (fabs((up - down) / 2e-3 - (double)g[i]) > 0.02)
            return manta_fail(MANTA_EINTERNAL, "gradient %%d: %%g, differences say %%g", i, (double)g[i], (up - down) / 2e-3);
    }
    manta_session_set_flat(s, w);
    for (int step = 0; step < 2000; step++) MANTA_TRY(manta_session_step(s, &f));
    manta_session_reset_metrics(s);
    MANTA_TRY(manta_session_evaluate_step(s, &f));
    manta_session_metrics(s, &m);
    printf("%%.3f\n", manta_metrics_get(&m, "coverage"));
    manta_session_close(s);
    manta_model_free(model);
    return MANTA_OK;
}

int main(void)
{
    if (train()) {
        fprintf(stderr, "%%s\n", manta_error_text());
        return 1;
    }
    return 0;
}
"""


def blocks(text):
    """The blocks of C in a header's comments."""
    found = []
    for comment in re.findall(r"/\*.*?\*/", text, re.S):
        for block in re.findall(r"(?:^ \*(?:     .*)?\n)+", comment, re.M):
            lines = [line[7:].rstrip() for line in block.splitlines()]
            if any(re.search(r"[;{}]$", line) for line in lines):
                found.append("\n".join(lines).strip("\n") + "\n")
    return found


def unit(code, around=""):
    """A translation unit that has the code in it."""
    head = f"#include <manta.h>\n#include <stdio.h>\n#include <unistd.h>\n{around}\n"
    if re.search(r"^\{", code, re.M):
        return head + code
    return f"{head}manta_status example(void);\nmanta_status example(void)\n{{\n{code}return MANTA_OK;\n}}\n"


class Examples(unittest.TestCase):
    def compile(self, name, code):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / (name + ".c")
            path.write_text(code)
            return run("gcc", *FLAGS, path).stderr

    def test_those_of_headers_compile(self):
        seen, wrong = set(), []
        for header in interface.HEADERS:
            for code in blocks(header.read_text()):
                seen.add(header.name)
                wrong.append(self.compile(header.stem, unit(code, AROUND.get(header.name, ""))))
        self.assertGreaterEqual(seen, {"actor.h", "callback.h", "cluster.h", "comm.h", "data.h", "events.h", "file.h", "model.h",
                                       "object.h", "recipe.h", "strategy.h", "task.h", "tensor.h", "trainer.h"})
        self.assertEqual([w for w in wrong if w], [])

    def test_a_wrong_one_is_found(self):
        text = "/* head\n *\n *     manta_saved *s;\n *     MANTA_TRY(manta_file_read(\"m.keras\", &s));\n *\n * end */"
        self.assertEqual(len(blocks(text)), 1)
        self.assertIn("too few arguments", self.compile("wrong", unit(blocks(text)[0])))
        self.assertIn("ignoring return value", self.compile("wrong", unit("manta_group_barrier((manta_group *)0);\n")))
        self.assertEqual(blocks("/* a tree:\n *\n *     a/b   the file; and\n *     c     others\n */"), [])

    def test_the_loss_and_the_metric_of_the_documents_train(self):
        section = (ROOT / "docs" / "extending.md").read_text().split("## Add a loss or a metric")[1].split("\n## ")[0]
        code = "".join(re.findall(r"```c\n(.*?)```", section, re.S))
        self.assertIn("manta_loss_call", code)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "quantile.c"
            path.write_text(QUANTILE % code)
            flags = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{ROOT}/include"]
            done = run("gcc", *flags, path, "-o", path.with_suffix(""), f"-L{BUILD}", f"-Wl,-rpath,{BUILD}", "-lmanta",
                       "-lm")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            done = run(path.with_suffix(""))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertAlmostEqual(float(done.stdout), 0.9, delta=0.05)


if __name__ == "__main__":
    unittest.main()
