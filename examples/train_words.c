/* train_words.c - a training from words: what `manta train` does, in a C program of one page.
 *
 *     train_words mnist-cnn mnist-cnn.npz data=mnist epochs=3 batch=64 optimizer=sgd lr=0.1
 *
 * trains the model to the bytes to which
 *
 *     manta train mnist-cnn --save mnist-cnn.npz --data mnist --epochs 3 --batch 64 --optimizer sgd
 *         --learning-rate 0.1
 *
 * trains it. Without arguments it lists the words that there are. */
#include <stdio.h>

#include <manta.h>

static void list_words(void)
{
    const manta_setting *s;

    printf("train_words MODEL FILE [NAME=VALUE]...\n\n");
    for (int i = 0; (s = manta_setting_at(i)); i++)
        printf("%s%s%s\n    %s\n", s->name, s->value ? "=" : "", s->value ? s->value : "", s->help);
}

static bool show(void *user, manta_session *s, const manta_event *e)
{
    (void)user;
    (void)s;
    if (e->kind == MANTA_EVENT_EPOCH_END) {
        printf("epoch %lld:", (long long)e->epoch + 1);
        for (int i = 0; i < e->metrics->n; i++) printf(" %s %.6f", e->metrics->name[i], e->metrics->value[i]);
        putchar('\n');
    }
    return true; /* go on */
}

/* All that a training has; what is open is closed at the end. */
typedef struct training {
    manta_recipe *recipe;
    manta_session *session;
    manta_dataset *data, *validation;
    manta_run *run; /* NULL: no name was given */
    int n;
    manta_callback *callbacks[16]; /* the recipe's, and last the run's recorder */
    manta_callback *recorder;
} training;

/* A run is a folder from which `manta train --resume NAME` can go on. */
static manta_status open_run(training *t)
{
    manta_checkpointing_options pace;
    manta_run_options options;

    MANTA_TRY(manta_recipe_run_options(t->recipe, &options, &pace));
    MANTA_TRY(manta_recipe_config(t->recipe, &options.config));
    MANTA_TRY(manta_run_open(&options, &t->run));
    t->callbacks[t->n++] = t->recorder = manta_run_recorder(t->run, &pace);
    return MANTA_OK;
}

static manta_status open_training(training *t, const char *model)
{
    manta_callback *const *made;
    bool validated;

    MANTA_TRY(manta_recipe_open(t->recipe, model));
    MANTA_TRY(manta_recipe_datasets(t->recipe, &t->data, &t->validation));
    MANTA_TRY(manta_recipe_session(t->recipe, NULL, MANTA_PURPOSE_TRAIN, &t->session));
    validated = t->validation != NULL;
    MANTA_TRY(manta_recipe_check_metrics(t->recipe, t->session, validated));
    MANTA_TRY(manta_recipe_callbacks(t->recipe, validated, &t->n, &made));
    for (int i = 0; i < t->n; i++) t->callbacks[i] = made[i];
    return manta_recipe_get(t->recipe, "name") ? open_run(t) : MANTA_OK;
}

static manta_status train(training *t, const char *model, const char *file)
{
    manta_fit_options fit;
    manta_metrics last;

    MANTA_TRY(manta_output_check(file, NULL));
    MANTA_TRY(manta_recipe_fit_options(t->recipe, &fit));
    MANTA_TRY(open_training(t, model));
    fit.validation = t->validation;
    fit.n_callbacks = t->n;
    fit.callbacks = t->callbacks;
    fit.event = show;
    MANTA_TRY(manta_fit(t->session, t->data, &fit, &last));
    if (t->run) MANTA_TRY(manta_run_finish(t->run, "done", &last, NULL));
    return manta_session_save(t->session, file);
}

static void close_training(training *t)
{
    manta_callback_free(t->recorder);
    manta_run_close(t->run);
    manta_session_close(t->session);
    manta_dataset_unref(t->data);
    manta_dataset_unref(t->validation);
    manta_recipe_free(t->recipe);
}

int main(int argc, char **argv)
{
    training t = {.recipe = manta_recipe_new(NULL)};
    manta_status st = MANTA_OK;
    int status;

    if (argc < 3) {
        list_words();
        close_training(&t);
        return argc == 1 ? 0 : 2;
    }
    for (int i = 3; !st && i < argc; i++) st = manta_recipe_add(t.recipe, argv[i]);
    if (!st) st = train(&t, argv[1], argv[2]);
    if (st) fprintf(stderr, "train_words: %s\n", manta_error_text());
    status = !st ? 0 : manta_recipe_fault(t.recipe) ? 2 : 1; /* 2: a word is wrong */
    close_training(&t);
    return status;
}
