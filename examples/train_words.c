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

static manta_status train(manta_recipe *r, const char *model, const char *file, manta_session **s,
                          manta_dataset **data, manta_dataset **validation)
{
    manta_fit_options fit;

    MANTA_TRY(manta_output_check(file, NULL));
    MANTA_TRY(manta_recipe_fit_options(r, &fit));
    MANTA_TRY(manta_recipe_open(r, model));
    MANTA_TRY(manta_recipe_datasets(r, data, validation));
    MANTA_TRY(manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, s));
    MANTA_TRY(manta_recipe_check_metrics(r, *s, *validation != NULL));
    MANTA_TRY(manta_recipe_callbacks(r, *validation != NULL, &fit.n_callbacks, &fit.callbacks));
    fit.validation = *validation;
    fit.event = show;
    MANTA_TRY(manta_fit(*s, *data, &fit, NULL));
    return manta_session_save(*s, file);
}

int main(int argc, char **argv)
{
    manta_recipe *r = manta_recipe_new(NULL);
    manta_session *s = NULL;
    manta_dataset *data = NULL, *validation = NULL;
    manta_status st = MANTA_OK;
    int status;

    if (argc < 3) {
        list_words();
        manta_recipe_free(r);
        return argc == 1 ? 0 : 2;
    }
    for (int i = 3; !st && i < argc; i++) st = manta_recipe_add(r, argv[i]);
    if (!st) st = train(r, argv[1], argv[2], &s, &data, &validation);
    if (st) fprintf(stderr, "train_words: %s\n", manta_error_text());
    status = !st ? 0 : manta_recipe_fault(r) ? 2 : 1; /* 2: a word is wrong */
    manta_session_close(s);
    manta_dataset_unref(data);
    manta_dataset_unref(validation);
    manta_recipe_free(r);
    return status;
}
