/* settings.c - the table of settings.
 *
 * A row is all that is known about a setting by itself; what several of them mean
 * together is known where they are read (recipe_*.c). The command line has its help
 * and its manual pages from here. */
#include "train/recipe/settings.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/status.h"

#define FLAG(name, help)                                                                                     \
    {                                                                                                        \
        name, MANTA_SETTING_FLAG, NULL, help                                                                 \
    }
#define TEXT(name, value, help)                                                                              \
    {                                                                                                        \
        name, MANTA_SETTING_TEXT, value, help                                                                \
    }
#define INT(name, value, help)                                                                               \
    {                                                                                                        \
        name, MANTA_SETTING_INT, value, help                                                                 \
    }
#define COUNT(name, value, help)                                                                             \
    {                                                                                                        \
        name, MANTA_SETTING_COUNT, value, help                                                               \
    }
#define REAL(name, value, help)                                                                              \
    {                                                                                                        \
        name, MANTA_SETTING_REAL, value, help                                                                \
    }

static const manta_setting settings[] = {
    /* data and how long */
    TEXT("data", "D",
         "What to train on: mnist, fashion-mnist, x.npy,y.npy, f.npz:x,y, f.csv:x=A+B,y=C (manta inspect "
         "f.csv "
         "says what to write), IDX files or a folder of images. A model of several inputs takes one for each "
         "by its name: image=a.npy,meta=f.csv:x=A+B,y=c.npy, or f.npz:image=a,meta=b,y=c. Wherever a file is "
         "named, s3://BUCKET/KEY or "
         "https://HOST/PATH may stand"),
    TEXT("validation", "D2", "What to evaluate on after every epoch, such as mnist:test"),
    REAL("validation-split", "F",
         "Evaluate on this last part of --data instead (0.2), and train on the rest"),
    COUNT("epochs", "E", "Passes over the data; 1 when not given"),
    INT("initial-epoch", "E", "Begin after so many epochs, as a run that went before left off"),
    COUNT("steps-per-epoch", "S", "Batches of an epoch; the data runs on across epochs"),
    COUNT("validation-steps", "S", "Batches of an evaluation; all when not given"),
    COUNT("batch", "B", "Samples of a step and worker; 32 when not given"),
    COUNT("global-batch", "G", "Samples of a step over all workers"),
    FLAG("no-shuffle", "Take the samples in their order"),
    TEXT("class-weight", "W0,W1,...", "How much the samples of each class count"),
    REAL("scale", "X", "Divide the samples by X (255 takes bytes to [0,1])"),
    TEXT("normalize", "MEAN,STD",
         "Subtract the mean, divide by the deviation, after --scale; with C channels C means, then C "
         "deviations. 0,1 turns a model's own off"),
    FLAG("raw", "Leave images as the bytes they are; without it they become numbers in [0,1]"),
    TEXT("resize", "HxW", "Resize images to this height and width, bilinear"),
    TEXT("crop", "HxW", "Then cut this much out of their middle"),
    COUNT("channels", "C", "Of image files: 3 makes red, green and blue of grey, 1 grey of all"),
    TEXT("augment", "HOW",
         "Change images at random while training on them, each time anew: flip (or flip=0.3), crop=4 (cut "
         "anywhere, with so many zeros around), rotation=15 (degrees), brightness=0.2, contrast=0.2, "
         "saturation=0.2, apart by commas"),
    /* the session */
    INT("seed", "K", "Of weights, order and dropout; 0 when not given. The same seed gives the same bits"),
    COUNT("shards", "V", "Cut every batch into so many parts, summed in a fixed order"),
    TEXT("strategy", "S",
         "mirrored: workers do every step together, and so they do when not given; one-device: this process "
         "alone; parameter-server: workers pull weights from servers and push gradients, and nobody waits"),
    COUNT("servers", "N", "Parameter servers; 1 when not given"),
    INT("staleness", "K",
        "With parameter servers: a step's weights lack the updates of at most K steps before it; no bound "
        "when not given"),
    TEXT("batch-norm", "HOW",
         "mean: the moving statistics of a step's parts become their mean, as TensorFlow has it, and so they "
         "do when not given; first: those of the first, as PyTorch has it; sync: the parts normalise with "
         "the statistics of the whole batch"),
    TEXT("workers", "N",
         "Processes that share the work; 1 when not given. Any of them may be killed: it costs a step and "
         "changes nothing. N:M begins with M and goes on with as few as N: SIGUSR2 takes one away, SIGUSR1 "
         "brings one back, and one that fails over and over is given up"),
    COUNT("threads-per-worker", "T",
          "Threads of a worker; all cores, divided by the workers, when not given"),
    TEXT("kernels", "K", "auto, reference, avx2, avx512 or onednn"),
    TEXT(
        "precision", "P",
        "exact: products of floats, the same bits on every machine, and so it is on a processor when not "
        "given; float32: the same on a processor, on a GPU products of tf32 numbers on its tensor cores, and "
        "so it is there when not given; mixed_bfloat16: products and activations in bfloat16, sums, weights "
        "and the optimizer in float32, which is faster on GPUs and where the processor has AVX-512-BF16"),
    TEXT("device", "D",
         "cpu, and so it is when not given; gpu: an NVIDIA GPU, with the same bits in precision exact; auto: "
         "a "
         "GPU where there is one that can compute this, else the processor"),
    FLAG("debug", "Node by node on reference loops; names the first NaN. Slow"),
    COUNT("max-failures", "N",
          "Give up when a worker has died so often in a row without finishing a step; 3 when not given"),
    /* weights */
    TEXT("weights", "FILE",
         "Begin with these, optimizer state included: a file, a checkpoint's folder, or a run for its last "
         "checkpoint"),
    FLAG("reset-optimizer", "Take the weights only, of --weights or of MODEL's file"),
    TEXT("freeze", "LAYERS", "Do not train layers whose names match these shell patterns (conv*,dense)"),
    /* loss and metrics */
    TEXT("loss", "L",
         "What to minimise, by Keras's name, with settings after a colon: "
         "sparse_categorical_crossentropy:label-smoothing=0.1. Cross-entropies take logits when the model "
         "gives logits (from-logits=no says otherwise); huber takes delta"),
    TEXT("metrics", "M,...", "What to report beside the loss, by Keras's names; none for no metric"),
    /* optimizer and schedule */
    TEXT("optimizer", "NAME", "sgd, adam, adamw or rmsprop"),
    REAL("learning-rate", "X", "The rate, or where a schedule begins"),
    TEXT("lr-schedule", "S",
         "cosine:steps=1000,warmup=100,alpha=0; exponential:steps=1000,rate=0.96,staircase; "
         "inverse-time:steps=1000,rate=0.5,staircase; polynomial:steps=1000,end=0.0001,power=1,cycle; "
         "piecewise:1000=0.01,2000=0.001 (after step 1000 the rate is 0.01, and so on)"),
    REAL("momentum", "X", "Of sgd and rmsprop"),
    FLAG("nesterov", "Nesterov's momentum (sgd)"),
    REAL("dampening", "X", "Of the momentum (torch.sgd)"),
    REAL("beta-1", "X", "Decay of the first moment (adam, adamw)"),
    REAL("beta-2", "X", "Decay of the second moment (adam, adamw)"),
    REAL("epsilon", "X", "The small number that keeps a division from zero"),
    REAL("rho", "X", "Decay of rmsprop's average"),
    FLAG("amsgrad", "Keep the largest second moment (adam, adamw)"),
    FLAG("centered", "Subtract the mean gradient (rmsprop)"),
    REAL("weight-decay", "X", "Decoupled decay of the weights"),
    REAL("clipvalue", "X", "Cut every gradient to [-X, X]"),
    REAL("clipnorm", "X", "Scale a variable's gradient to at most this norm"),
    REAL("global-clipnorm", "X", "Scale all gradients together to at most this norm"),
    COUNT("gradient-accumulation", "N", "Update once every N steps with their mean gradient"),
    REAL("ema", "MOMENTUM", "Keep a moving average of the weights, and end with it"),
    COUNT("ema-overwrite", "N", "Replace the weights by their average every N updates"),
    /* callbacks */
    TEXT("early-stop", "METRIC",
         "End when the metric has stopped improving, as val_loss:patience=3; also min-delta=X, baseline=X, "
         "from=EPOCH, mode=min and restore-best, apart by commas"),
    TEXT("reduce-lr", "METRIC",
         "Lower the rate when the metric has stopped improving, as val_loss:factor=0.1,patience=10; also "
         "min-delta=X, cooldown=N, min=X and mode=min"),
    TEXT("csv-log", "FILE", "Write the metrics of every epoch as a line of this file"),
    TEXT("tensorboard", "DIR", "Write event files as Keras's TensorBoard callback does"),
    TEXT("save-best", "FILE",
         "Save the model whenever val_loss (or loss) is the best so far; {epoch} and {val_loss:.2f} are "
         "filled in"),
    FLAG("terminate-on-nan", "End when the loss is no number"),
    /* what is kept of it */
    TEXT("name", "NAME",
         "Keep the run in a folder of this name: configuration, metrics, events, logs, checkpoints, result"),
    TEXT("storage", "DIR",
         "Where such folders lie, a folder or s3://BUCKET/PREFIX; $MANTA_STORAGE or ~/manta-runs when not "
         "given. Without --name the run is "
         "called after its model and numbered"),
    TEXT("run-dir", "DIR", "The folder of the run itself, instead of --storage and --name"),
    TEXT("checkpoint-every", "N",
         "Save a checkpoint every so often: 20steps, 1epoch; every epoch when not given. Training does not "
         "wait for it"),
    COUNT("keep", "N", "Keep so many checkpoints; 2 when not given"),
    TEXT("keep-best", "METRIC", "Keep those best by this metric (accuracy, val_loss, ...), and the latest"),
    TEXT("log-level", "LEVEL",
         "What is logged, by this process and the workers: debug, info, warn, error or off; as $MANTA_LOG "
         "says when not given"),
    TEXT("log-to", "PLACE",
         "Where what the workers of a run print goes: file (log/rank-N.txt of the run), output (standard "
         "error, behind the rank) or both; file when not given"),
    FLAG("log-stamp", "Put the time and the rank before every line that they print"),
    TEXT("log-size", "SIZE",
         "Keep so much of what each of them prints, as 500k, 64M or 2G; 'all' for no bound; 64M when not "
         "given. Older lines go, and the log says so"),
};

enum { N_SETTINGS = sizeof settings / sizeof *settings };

/* What else they are called, mostly by Keras. */
static const char *const spellings[][2] = {
    {"lr", "learning-rate"},
    {"batch-size", "batch"},
    {"ema-momentum", "ema"},
    {"ema-overwrite-frequency", "ema-overwrite"},
    {"gradient-accumulation-steps", "gradient-accumulation"},
};

/* ---- names ---- */

bool settings_same_name(const char *a, const char *b)
{
    for (; *a && (*a == '_' ? '-' : *a) == (*b == '_' ? '-' : *b); a++, b++) {}
    return !*a && !*b;
}

int settings_count(void)
{
    return N_SETTINGS;
}

int settings_index(const char *name)
{
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        if (settings_same_name(name, spellings[i][0])) name = spellings[i][1];
    }
    for (int i = 0; i < N_SETTINGS; i++) {
        if (settings_same_name(name, settings[i].name)) return i;
    }
    return -1;
}

const manta_setting *manta_setting_at(int i)
{
    return i >= 0 && i < N_SETTINGS ? &settings[i] : NULL;
}

const manta_setting *manta_setting_find(const char *name)
{
    REFUSE_NULL_OR(name, NULL);
    return manta_setting_at(settings_index(name));
}

/* ---- values ---- */

manta_status settings_real(const char *what, const char *text, double *out)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end || !isfinite(v))
        return manta_fail(MANTA_EINVAL, "%s: '%.80s' is not a number", what, text);
    *out = v;
    return MANTA_OK;
}

manta_status settings_int(const char *what, const char *text, int64_t *out)
{
    char *end;
    long long v;

    errno = 0;
    v = strtoll(text, &end, 10);
    if (end == text || *end) return manta_fail(MANTA_EINVAL, "%s: '%.80s' is not a whole number", what, text);
    if (errno == ERANGE)
        return manta_fail(MANTA_EINVAL, "%s: %.80s is too large for a whole number of 64 bits", what, text);
    *out = v;
    return MANTA_OK;
}

manta_status settings_reals(const char *what, const char *text, int cap, double *out, int *n)
{
    char *copy = mem_strdup(text), *rest = copy;
    manta_status st = MANTA_OK;

    *n = 0;
    for (char *part; !st && (part = strsep(&rest, ","));) {
        if (*n == cap) {
            st = manta_fail(MANTA_EINVAL, "%s: too many numbers, expected at most %d", what, cap);
        } else {
            st = settings_real(what, part, &out[(*n)++]);
        }
    }
    mem_free(copy);
    return st;
}

static manta_status check_flag(const char *what, const char *text)
{
    static const char *const words[] = {"yes", "no", "true", "false"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strcmp(text, words[i])) return MANTA_OK;
    }
    return manta_fail(MANTA_EINVAL, "%s: '%.80s', expected yes or no", what, text);
}

manta_status manta_setting_check(const manta_setting *s, const char *prefix, const char *text)
{
    REFUSE_NULL(s);
    REFUSE_NULL(prefix);
    REFUSE_NULL(text);

    char *what = mem_printf("%s%s", prefix ? prefix : "", s->name);
    manta_status st = MANTA_OK;
    int64_t n = 0;
    double v;

    switch (s->kind) {
    case MANTA_SETTING_FLAG: st = check_flag(what, text); break;
    case MANTA_SETTING_TEXT:
        if (!*text) st = manta_fail(MANTA_EINVAL, "%s: nothing was given", what);
        break;
    case MANTA_SETTING_REAL: st = settings_real(what, text, &v); break;
    case MANTA_SETTING_INT:
    case MANTA_SETTING_COUNT:
        if ((st = settings_int(what, text, &n))) break;
        if (s->kind == MANTA_SETTING_INT && n < 0)
            st = manta_fail(MANTA_EINVAL, "%s: %s is negative", what, text);
        if (s->kind == MANTA_SETTING_COUNT && n < 1)
            st = manta_fail(MANTA_EINVAL, "%s: %s, expected 1 or more", what, text);
        break;
    }
    mem_free(what);
    return st;
}
