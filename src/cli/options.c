/* options.c - the options of one run.
 *
 * The table is ours; argp parses and prints help from it. Before argp sees the
 * line, names are checked here: argp would take --epoch for --epochs, which
 * breaks the day --epoch-size arrives, and it makes no suggestion. */
#include <argp.h>
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <manta/recipe.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/settings.h"
#include "cli/suggest.h"

enum { MOST = 128, FIRST_KEY = 256, MOST_ARGS = 8 };

struct options {
    const command *c;
    int n;
    const cli_option *option[MOST];
    char *text[MOST]; /* NULL: not given */
    int n_args;
    const char *args[MOST_ARGS];
    char **rest; /* the words behind -- */
    char *model; /* what the configuration file calls the model; args may point to it */
};

/* ---- the table ---- */

const cli_option *command_option(const command *c, const char *name, size_t n)
{
    for (int g = 0; g < COMMAND_GROUPS && c->groups[g]; g++) {
        for (const cli_option *p = c->groups[g]->options; p->name; p++) {
            if (strlen(p->name) == n && !strncmp(p->name, name, n)) return settings_row(p);
        }
    }
    return NULL;
}

static int find_option(const options *o, const char *name)
{
    for (int i = 0; i < o->n; i++) {
        if (!strcmp(o->option[i]->name, name)) return i;
    }
    return -1;
}

static _Noreturn void refuse_unknown(const command *c, const char *dashes, const char *name)
{
    suggestion s = suggest_for(name);

    for (int g = 0; g < COMMAND_GROUPS && c->groups[g]; g++) {
        for (const cli_option *p = c->groups[g]->options; p->name; p++) {
            if (p->kind != OPTION_LATER) suggest_offer(&s, p->name);
        }
    }
    suggest_offer(&s, "help");
    if (s.best) cli_usage("unknown option %s%s; did you mean %s%s?", dashes, name, dashes, s.best);
    cli_usage("unknown option %s%s", dashes, name);
}

/* ---- values ---- */

double options_real_of(const char *what, const char *text)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end || !isfinite(v)) cli_usage("%s: '%s' is not a number", what, text);
    return v;
}

int64_t options_int_of(const char *what, const char *text)
{
    char *end;
    long long v;

    errno = 0;
    v = strtoll(text, &end, 10);
    if (end == text || *end) cli_usage("%s: '%s' is not a whole number", what, text);
    if (errno == ERANGE) cli_usage("%s: %s is too large for a whole number of 64 bits", what, text);
    return v;
}

/* What is wrong with the value of an option, into why; false: nothing is. */
static bool is_wrong(const cli_option *p, const char *text, char *why, size_t size)
{
    manta_setting s = {.name = p->name, .kind = MANTA_SETTING_TEXT};

    *why = '\0';
    switch (p->kind) {
    case OPTION_LATER: snprintf(why, size, "--%s is not there yet: %s", p->name, p->help); return true;
    case OPTION_REAL: s.kind = MANTA_SETTING_REAL; break;
    case OPTION_INT: s.kind = MANTA_SETTING_INT; break;
    case OPTION_COUNT: s.kind = MANTA_SETTING_COUNT; break;
    case OPTION_TEXT:
    case OPTION_OUTPUT: break;
    case OPTION_MAYBE:
    case OPTION_FLAG:
    case OPTION_SETTING: return false;
    }
    if (!manta_setting_check(&s, "--", text)) return false;
    snprintf(why, size, "%s", manta_error_text());
    return true;
}

static void check_value(const cli_option *p, const char *text)
{
    char why[400];

    if (is_wrong(p, text, why, sizeof why)) cli_usage("%s", why);
}

static void set_option(options *o, int i, const char *text)
{
    check_value(o->option[i], text);
    free(o->text[i]);
    o->text[i] = strdup(text);
}

/* ---- the command line ---- */

/* What argp calls the i-th option. */
static int key_of(const options *o, int i)
{
    return o->option[i]->kind == OPTION_OUTPUT ? 'o' : FIRST_KEY + i;
}

static error_t take_argument(int key, char *text, struct argp_state *state)
{
    options *o = state->input;

    if (key == ARGP_KEY_ARG) {
        if (o->n_args >= o->c->max_args) cli_usage("unexpected argument '%s'", text);
        o->args[o->n_args++] = text;
        return 0;
    }
    for (int i = 0; i < o->n; i++) {
        if (key != key_of(o, i)) continue;
        set_option(o, i, text ? text : o->option[i]->kind == OPTION_MAYBE ? "" : "yes");
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

/* The table in argp's words; a group's title is a line without a name. */
static struct argp_option *argp_table(const options *o)
{
    struct argp_option *t = calloc(MOST + COMMAND_GROUPS + 1, sizeof *t), *at = t;
    int i = 0;

    if (!t) abort();
    for (int g = 0; g < COMMAND_GROUPS && o->c->groups[g]; g++) {
        *at++ = (struct argp_option){.doc = o->c->groups[g]->title, .group = g + 1};
        for (const cli_option *q = o->c->groups[g]->options; q->name; q++, i++) {
            const cli_option *p = settings_row(q);
            *at++ = (struct argp_option){.name = p->name,
                                         .key = key_of(o, i),
                                         .arg = p->arg,
                                         .flags = p->kind == OPTION_LATER   ? OPTION_HIDDEN
                                                  : p->kind == OPTION_MAYBE ? OPTION_ARG_OPTIONAL
                                                                            : 0,
                                         .doc = p->help,
                                         .group = g + 1};
        }
    }
    return t;
}

static char *no_note(int key, const char *text, void *input)
{
    (void)input;
    return key == ARGP_KEY_HELP_DUP_ARGS_NOTE ? NULL : (char *)(uintptr_t)text;
}

static char *argp_doc(const command *c)
{
    char *doc;

    if (asprintf(&doc, "%s.\n\n%s\v%s%s", c->about, c->text, c->examples ? "Examples:\n" : "",
                 c->examples ? c->examples : "") < 0) {
        abort();
    }
    return doc;
}

/* Makes "--resume", "mine" one word, "--resume=mine": argp takes no other. */
static void join_option_value(int i, int *argc, char **argv)
{
    char *both;

    if (i + 1 >= *argc || argv[i + 1][0] == '-') return;
    if (asprintf(&both, "%s=%s", argv[i], argv[i + 1]) < 0) abort();
    argv[i] = both;
    (*argc)--;
    for (int k = i + 1; k < *argc; k++) argv[k] = argv[k + 1];
}

/* Every long name must be one of the table's, written in full. Returns how many
 * words the line then has. */
static int check_names(const command *c, int argc, char **argv)
{
    static char help[] = "--help", follow[] = "--follow";

    for (int i = 1; i < argc; i++) {
        const char *name = argv[i] + 2;
        size_t n;
        const cli_option *p;
        if (!strcmp(argv[i], "--")) break;
        if (!strcmp(argv[i], "-h")) argv[i] = help;
        if (!strcmp(argv[i], "-f") && command_option(c, "follow", 6)) argv[i] = follow;
        name = argv[i] + 2;
        if (strncmp(argv[i], "--", 2) || !strcmp(argv[i], "--help") || !strcmp(argv[i], "--usage")) continue;
        n = strcspn(name, "=");
        p = command_option(c, name, n);
        if (!p) refuse_unknown(c, "--", strndup(name, n));
        if (p->kind == OPTION_LATER) check_value(p, "");
        if (p->kind == OPTION_MAYBE && !name[n]) {
            join_option_value(i, &argc, argv);
        } else if (p->arg && !name[n]) {
            i++;
        }
    }
    return argc;
}

/* ---- the configuration file ---- */

static _Noreturn void bad_config(const char *path, const char *why)
{
    print_err("manta: %s: %s\n", path, why);
    exit(CLI_FAILED);
}

/* A JSON value as it would be typed. Owned by the caller. */
static char *config_text(const char *path, const char *key, const json_t *v)
{
    char *text = NULL, *whole = NULL;
    const json_t *each;
    size_t i;

    switch (json_typeof(v)) {
    case JSON_STRING: return strdup(json_string_value(v));
    case JSON_INTEGER:
        if (asprintf(&text, "%lld", (long long)json_integer_value(v)) < 0) abort();
        return text;
    case JSON_REAL:
        if (asprintf(&text, "%.17g", json_real_value(v)) < 0) abort();
        return text;
    case JSON_TRUE: return strdup("yes");
    case JSON_FALSE:
    case JSON_NULL: return NULL;
    case JSON_ARRAY:
        json_array_foreach(v, i, each)
        {
            char *part = config_text(path, key, each), *longer;
            if (asprintf(&longer, "%s%s%s", whole ? whole : "", whole ? "," : "", part ? part : "") < 0)
                abort();
            free(whole);
            free(part);
            whole = longer;
        }
        return whole;
    case JSON_OBJECT: break;
    }
    cli_usage("%s: the value of \"%s\" is an object, expected a text, a number or a list", path, key);
}

static void config_entry(options *o, const char *path, const char *key, const json_t *v)
{
    char *name = strdup(key), *text = config_text(path, key, v);
    int i;

    for (char *p = name; *p; p++) {
        if (*p == '_') *p = '-';
    }
    i = find_option(o, name);
    if (!strcmp(name, "model") && i < 0 && o->c->max_args) {
        if (!o->n_args && text) o->args[o->n_args++] = o->model = strdup(text);
    } else if (i < 0 || !strcmp(name, "config")) {
        refuse_unknown(o->c, "", name);
    } else if (text && !o->text[i]) {
        if (o->option[i]->kind == OPTION_FLAG && !json_is_true(v)) {
            cli_usage("%s: \"%s\" is given or not: expected true or false", path, key);
        }
        set_option(o, i, o->option[i]->kind == OPTION_MAYBE && json_is_true(v) ? "" : text);
    }
    free(name);
    free(text);
}

/* What the file says and the command line does not. */
static void read_config(options *o, const char *path)
{
    json_error_t why;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why), *v;
    const char *key;
    char text[JSON_ERROR_TEXT_LENGTH + 64];

    if (!root && why.line > 0) {
        snprintf(text, sizeof text, "line %d, column %d: %s", why.line, why.column, why.text);
        bad_config(path, text);
    }
    if (!root) bad_config(path, errno ? strerror(errno) : why.text);
    if (!json_is_object(root)) bad_config(path, "expected one JSON object");
    (void)json_object_del(root, "check"); /* of a run's own: here it may be changed */
    json_object_foreach(root, key, v) config_entry(o, path, key, v);
    json_decref(root);
}

/* ---- all of it ---- */

/* Cuts the line at --, for a command that takes what follows. Returns how many words it then has. */
static int cut_rest(options *o, int argc, char **argv)
{
    static char *none[] = {NULL};

    o->rest = none;
    for (int i = 1; i < argc && o->c->rest; i++) {
        if (strcmp(argv[i], "--") != 0) continue;
        o->rest = argv + i + 1;
        return i;
    }
    return argc;
}

/* -n 4 and -n4, for a command that starts processes. */
static void spell_out(const command *c, int argc, char **argv)
{
    static char processes[] = "--processes";

    for (int i = 1; i < argc && command_option(c, "processes", 9); i++) {
        if (!strcmp(argv[i], "-n")) {
            argv[i] = processes;
        } else if (!strncmp(argv[i], "-n", 2) && asprintf(&argv[i], "--processes=%s", argv[i] + 2) < 0) {
            abort();
        }
    }
}

static options *new_options(const command *c)
{
    options *o = calloc(1, sizeof *o);

    if (!o) abort();
    o->c = c;
    for (int g = 0; g < COMMAND_GROUPS && c->groups[g]; g++) {
        for (const cli_option *p = c->groups[g]->options; p->name; p++) {
            assert(o->n < MOST);
            o->option[o->n++] = settings_row(p);
        }
    }
    return o;
}

options *options_parse(const command *c, int argc, char **argv)
{
    options *o = new_options(c);
    struct argp argp = {.parser = take_argument, .args_doc = c->args, .help_filter = no_note};
    const char *config;

    cli_set_command(c->name);
    argc = cut_rest(o, argc, argv);
    spell_out(c, argc, argv);
    argc = check_names(c, argc, argv);
    argp.options = argp_table(o);
    argp.doc = argp_doc(c);
    argp_err_exit_status = CLI_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, o);
    free((void *)(uintptr_t)argp.options);
    free((void *)(uintptr_t)argp.doc);
    config = find_option(o, "config") >= 0 ? options_text(o, "config") : NULL;
    if (config) read_config(o, config);
    if (o->n_args < c->min_args) cli_usage("%s needs %s", c->name, c->args);
    return o;
}

void options_free(options *o)
{
    if (!o) return;
    for (int i = 0; i < o->n; i++) free(o->text[i]);
    free(o->model);
    free(o);
}

bool options_is_place(const char *name)
{
    static const char *const places[] = {"config", "name", "storage", "run-dir", "resume", "json", "rates"};

    for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
        if (!strcmp(name, places[k])) return true;
    }
    return false;
}

/* A text as a run's config.json has it. */
static json_t *kept_text(const char *name, const char *text)
{
    json_t *s = json_string(text);

    if (!s)
        cli_usage("%s is not UTF-8, and the configuration of a run that is kept holds nothing else", name);
    return s;
}

char *options_json(const options *o, const char *precision)
{
    json_t *all = json_object();
    char *text;

    if (o->n_args) json_object_set_new(all, "model", kept_text("MODEL", o->args[0]));
    for (int i = 0; i < o->n; i++) {
        const char *name = o->option[i]->name;
        char shown[64];
        if (!o->text[i] || options_is_place(name)) continue;
        snprintf(shown, sizeof shown, "--%s", name);
        json_object_set_new(all, name,
                            o->option[i]->kind == OPTION_FLAG ? json_true() : kept_text(shown, o->text[i]));
    }
    if (precision) json_object_set_new(all, "precision", json_string(precision));
    text = json_dumps(all, JSON_INDENT(1));
    json_decref(all);
    if (!text) abort(); /* small control memory */
    return text;
}

/* ---- what a run was begun with ---- */

/* One entry of a saved configuration. */
static manta_status saved_entry(options *o, const char *where, const char *key, const json_t *v)
{
    int i = find_option(o, key);
    char why[400];

    if (!strcmp(key, "model") && i < 0) {
        if (!json_is_string(v) || !*json_string_value(v))
            return manta_fail(MANTA_EINVAL, "%s: \"model\" is expected to be a text", where);
        options_set_arg(o, json_string_value(v));
        return MANTA_OK;
    }
    if (i < 0 || options_is_place(key)) {
        return manta_fail(MANTA_EINVAL, "%s: \"%.60s\" is no option that '%s' keeps with a run", where, key,
                          o->c->name);
    }
    if (o->option[i]->kind == OPTION_FLAG) {
        if (!json_is_boolean(v))
            return manta_fail(MANTA_EINVAL, "%s: \"%s\" is given or not: expected true or false", where, key);
        options_set(o, key, json_is_true(v) ? "yes" : NULL);
        return MANTA_OK;
    }
    if (!json_is_string(v))
        return manta_fail(MANTA_EINVAL, "%s: \"%s\" is expected to be a text", where, key);
    if (is_wrong(o->option[i], json_string_value(v), why, sizeof why))
        return manta_fail(MANTA_EINVAL, "%s: %s", where, why);
    options_set(o, key, json_string_value(v));
    return MANTA_OK;
}

manta_status options_read_json(const command *c, const char *where, const char *text, options **out)
{
    options *o = new_options(c);
    json_error_t why;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why), *v;
    const char *key;
    manta_status st = MANTA_OK;

    if (!root) {
        st = manta_fail(MANTA_EINVAL, "%s: line %d, column %d: %s", where, why.line, why.column, why.text);
    } else if (!json_is_object(root)) {
        st = manta_fail(MANTA_EINVAL, "%s: expected one JSON object", where);
    } else if (json_object_get(root, "datasets")) { /* no option is called so */
        st = manta_fail(MANTA_EINVAL,
                        "%s: this run is trained by a loop of a program's own: that program goes on with it",
                        where);
    }
    json_object_foreach(root, key, v)
    {
        if (!st) st = saved_entry(o, where, key, v);
    }
    json_decref(root);
    if (!st) {
        *out = o;
        o = NULL;
    }
    options_free(o);
    return st;
}

bool options_at(const options *o, int i, const cli_option **option, const char **text)
{
    if (i >= o->n) return false;
    *option = o->option[i];
    *text = o->text[i];
    return true;
}

void options_set(options *o, const char *name, const char *text)
{
    int i = find_option(o, name);
    char *copy = text ? strdup(text) : NULL;

    assert(i >= 0 && "the command has no such option");
    if (text && !copy) abort();
    free(o->text[i]);
    o->text[i] = copy;
}

void options_set_arg(options *o, const char *text)
{
    char *copy = strdup(text);

    if (!copy) abort();
    free(o->model);
    o->args[0] = o->model = copy;
    if (!o->n_args) o->n_args = 1;
}

const command *options_command(const options *o)
{
    return o->c;
}

bool options_knows(const options *o, const char *name)
{
    return find_option(o, name) >= 0;
}

const char *options_text(const options *o, const char *name)
{
    int i = find_option(o, name);

    assert(i >= 0 && "the command has no such option");
    return o->text[i];
}

bool options_flag(const options *o, const char *name)
{
    return options_text(o, name) != NULL;
}

int64_t options_int(const options *o, const char *name, int64_t fallback)
{
    const char *text = options_text(o, name);

    return text ? options_int_of(name, text) : fallback;
}

double options_real(const options *o, const char *name, double fallback)
{
    const char *text = options_text(o, name);

    return text ? options_real_of(name, text) : fallback;
}

const char *const *options_rest(const options *o)
{
    return (const char *const *)o->rest;
}

const char *options_arg(const options *o, int i)
{
    return i < o->n_args ? o->args[i] : NULL;
}
