/* What words make: settings, every optimizer, schedule, loss and metric by its name; and what of it is
 * refused, with which setting to blame. */
#include "recipe_fixture.h"

/* ---- settings ---- */

static void every_setting_is_found_in_its_spellings(void **state)
{
    const manta_setting *s;
    int n = 0;

    (void)state;
    for (; (s = manta_setting_at(n)); n++) {
        char name[64];
        snprintf(name, sizeof name, "%s", s->name);
        assert_ptr_equal(manta_setting_find(name), s);
        for (char *c = name; *c; c++) *c = *c == '-' ? '_' : *c;
        assert_ptr_equal(manta_setting_find(name), s);
        assert_true(strlen(s->help) > 10);
        assert_true((s->kind == MANTA_SETTING_FLAG) == (s->value == NULL));
    }
    assert_true(n > 50);
    assert_null(manta_setting_at(-1));
    assert_null(manta_setting_find("learning"));
    assert_null(manta_setting_find(""));
    assert_ptr_equal(manta_setting_find("lr"), manta_setting_find("learning-rate"));
    assert_ptr_equal(manta_setting_find("batch_size"), manta_setting_find("batch"));
    assert_ptr_equal(manta_setting_find("ema_momentum"), manta_setting_find("ema"));
    assert_ptr_equal(manta_setting_find("ema_overwrite_frequency"), manta_setting_find("ema-overwrite"));
    assert_ptr_equal(manta_setting_find("gradient_accumulation_steps"),
                     manta_setting_find("gradient-accumulation"));
}

static void what_is_set_can_be_read_and_taken_back(void **state)
{
    manta_recipe *r = recipe_of("lr=0.5 nesterov data=mnist");

    (void)state;
    assert_string_equal(manta_recipe_get(r, "learning-rate"), "0.5");
    assert_string_equal(manta_recipe_get(r, "nesterov"), "yes");
    assert_null(manta_recipe_get(r, "momentum"));
    assert_null(manta_recipe_get(r, "no such"));
    assert_ok(manta_recipe_set(r, "learning_rate", manta_recipe_get(r, "lr")));
    assert_string_equal(manta_recipe_get(r, "lr"), "0.5");
    assert_ok(manta_recipe_set(r, "learning_rate", NULL));
    assert_null(manta_recipe_get(r, "lr"));
    assert_ok(manta_recipe_set(r, "nesterov", "no"));
    assert_null(manta_recipe_get(r, "nesterov"));
    assert_ok(manta_recipe_set(r, "nesterov", "true"));
    assert_non_null(manta_recipe_get(r, "nesterov"));
    assert_ok(manta_recipe_add(r, "nesterov=false"));
    assert_null(manta_recipe_get(r, "nesterov"));
    manta_recipe_free(r);
    manta_recipe_free(NULL);
}

static void a_setting_that_cannot_be_is_refused_at_once(void **state)
{
    static const struct {
        const char *word, *setting, *part;
    } cases[] = {
        {"lr=fast", "learning-rate", "learning-rate: 'fast' is not a number"},
        {"lr=", "learning-rate", "'' is not a number"},
        {"lr=1x", "learning-rate", "'1x'"},
        {"lr=inf", "learning-rate", "'inf'"},
        {"lr=nan", "learning-rate", "'nan'"},
        {"lr", "learning-rate", "expected lr=X"},
        {"epochs=three", "epochs", "'three' is not a whole number"},
        {"epochs=2.5", "epochs", "'2.5' is not a whole number"},
        {"epochs=0", "epochs", "expected 1 or more"},
        {"epochs=99999999999999999999", "epochs", "too large"},
        {"seed=-1", "seed", "is negative"},
        {"nesterov=perhaps", "nesterov", "'perhaps', expected yes or no"},
        {"data=", "data", "nothing was given"},
    };
    manta_recipe *r = manta_recipe_new(NULL);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_blames(r, manta_recipe_add(r, cases[i].word), MANTA_EINVAL, cases[i].setting, cases[i].part);
        assert_null(manta_recipe_get(r, cases[i].setting));
    }
    assert_blames(r, manta_recipe_add(r, "momentun=0.9"), MANTA_ENOENT, "momentun", "did you mean momentum?");
    assert_blames(r, manta_recipe_set(r, "zzzzzzzz", "1"), MANTA_ENOENT, "zzzzzzzz", "'zzzzzzzz'");
    assert_null(strstr(manta_error_text(), "did you mean"));
    assert_ok(manta_recipe_add(r, "momentum=0.9"));
    assert_null(manta_recipe_fault(r)); /* of the last call */
    manta_recipe_free(r);
}

static void sentences_speak_as_the_user_writes(void **state)
{
    manta_recipe *r = manta_recipe_new("--");
    manta_session_options so;

    (void)state;
    assert_blames(r, manta_recipe_set(r, "epochs", "x"), MANTA_EINVAL, "epochs", "--epochs: 'x'");
    assert_blames(r, manta_recipe_set(r, "epoch", "3"), MANTA_ENOENT, "epoch",
                  "'--epoch'; did you mean epochs?");
    assert_ok(manta_recipe_set(r, "strategy", "one-device"));
    assert_ok(manta_recipe_set(r, "workers", "2"));
    assert_blames(r, manta_recipe_session_options(r, &so), MANTA_EINVAL, "strategy", "leave --workers out");
    manta_recipe_free(r);
}

/* ---- optimizers ---- */

/* Compiles the words for a model of the program's own; the optimizer into *out. */
static manta_status compile_optimizer(manta_recipe *r, manta_optimizer *out)
{
    manta_model *m = dense_model(1, NULL);
    const manta_compile *c;
    manta_status st;

    assert_ok(manta_recipe_use(r, m));
    if (!(st = manta_recipe_compile(r, MANTA_PURPOSE_TRAIN, &c))) *out = *c->optimizer;
    manta_model_free(m);
    return st;
}

static manta_optimizer optimizer_of(const char *words)
{
    manta_recipe *r = recipe_of(words);
    manta_optimizer o = {0};

    assert_ok(compile_optimizer(r, &o));
    manta_recipe_free(r);
    return o;
}

static void every_optimizer_is_made_by_name(void **state)
{
    static const char *const names[] = {"sgd",       "adam",       "adamw",       "rmsprop",
                                        "torch.sgd", "torch.adam", "torch.adamw", "torch.rmsprop"};
    manta_optimizer expected, o;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char words[64];
        snprintf(words, sizeof words, "optimizer=%s", names[i]);
        o = optimizer_of(words);
        assert_ok(manta_optimizer_named(names[i], &expected));
        assert_memory_equal(&o, &expected, sizeof o);
        assert_string_equal(manta_optimizer_name(&o), names[i]);
    }
    o = optimizer_of("optimizer=RMSprop");
    assert_int_equal(o.kind, MANTA_OPTIMIZER_RMSPROP);
    o = optimizer_of(""); /* Keras's, for a model that says nothing */
    assert_int_equal(o.kind, MANTA_OPTIMIZER_RMSPROP);
}

static void every_number_of_an_optimizer_arrives(void **state)
{
    manta_optimizer o;

    (void)state;
    o = optimizer_of("optimizer=torch.sgd lr=0.25 momentum=0.5 dampening=0.125 weight-decay=0.0625");
    assert_true(o.learning_rate == 0.25 && o.momentum == 0.5 && o.dampening == 0.125 &&
                o.weight_decay == 0.0625);
    o = optimizer_of("optimizer=sgd momentum=0.5 nesterov clipvalue=2");
    assert_true(o.nesterov && o.clipvalue == 2);
    o = optimizer_of("optimizer=adam beta_1=0.5 beta_2=0.75 epsilon=0.001 amsgrad clipnorm=3");
    assert_true(o.beta_1 == 0.5 && o.beta_2 == 0.75 && o.epsilon == 0.001 && o.amsgrad && o.clipnorm == 3);
    o = optimizer_of("optimizer=rmsprop rho=0.5 centered global_clipnorm=4 gradient_accumulation_steps=3");
    assert_true(o.rho == 0.5 && o.centered && o.global_clipnorm == 4 && o.gradient_accumulation_steps == 3);
    o = optimizer_of("optimizer=adam ema=0.5 ema-overwrite=7");
    assert_true(o.use_ema && o.ema_momentum == 0.5 && o.ema_overwrite_frequency == 7);
}

static void an_optimizer_that_cannot_be_blames_its_setting(void **state)
{
    static const struct {
        const char *words, *setting, *part;
    } cases[] = {
        {"optimizer=adma", "optimizer", "optimizer: there is no optimizer \"adma\""},
        {"optimizer=adma", "optimizer", "did you mean adam?"},
        {"lr=-1", "learning-rate", "learning_rate"},
        {"optimizer=sgd momentum=-1", "momentum", "momentum"},
        {"optimizer=adam nesterov", "nesterov", "nesterov"},
        {"optimizer=adam beta-1=2", "beta-1", "beta_1"},
        {"clipnorm=1 clipvalue=1", "clipnorm", "clip"},
        {"ema-overwrite=3", "ema-overwrite", "needs ema"},
        {"ema=2", "ema", "ema_momentum"},
        {"gradient-accumulation=3000000000", "gradient-accumulation", "at most 2147483647"},
        {"lr-schedule=cosine:steps=0", "lr-schedule", "steps"},
        {"lr-schedule=cosin:steps=3", "lr-schedule", "did you mean cosine?"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        manta_recipe *r = recipe_of(cases[i].words);
        manta_optimizer o;
        assert_blames(r, compile_optimizer(r, &o), MANTA_EINVAL, cases[i].setting, cases[i].part);
        manta_recipe_free(r);
    }
}

/* ---- schedules ---- */

static manta_schedule schedule_of(const char *text)
{
    manta_schedule s = {0};

    assert_ok(manta_schedule_named(text, 0.5, &s));
    return s;
}

static void every_schedule_is_made_by_our_name_and_by_keras_s(void **state)
{
    static const struct {
        const char *ours, *keras;
        manta_schedule_kind kind;
    } cases[] = {
        {"cosine:steps=10,alpha=0.25", "CosineDecay:decay_steps=10,alpha=0.25", MANTA_SCHEDULE_COSINE},
        {"cosine:steps=10,warmup=4,start=0.125",
         "cosine_decay:decay_steps=10,warmup_steps=4,"
         "initial_learning_rate=0.125,warmup_target=0.5",
         MANTA_SCHEDULE_COSINE},
        {"exponential:steps=10,rate=0.5,staircase",
         "ExponentialDecay:decay_steps=10,decay_rate=0.5,staircase=yes", MANTA_SCHEDULE_EXPONENTIAL},
        {"inverse-time:steps=10", "InverseTimeDecay:decay_steps=10,decay_rate=0.5,staircase=no",
         MANTA_SCHEDULE_INVERSE_TIME},
        {"inverse_time:steps=10", "InverseTimeDecay:decay_steps=10", MANTA_SCHEDULE_INVERSE_TIME},
        {"polynomial:steps=10,end=0.25,power=2,cycle",
         "PolynomialDecay:decay_steps=10,end_learning_rate=0.25,power=2,cycle", MANTA_SCHEDULE_POLYNOMIAL},
        {"piecewise:3=0.25,6=0.125", "PiecewiseConstantDecay:3=0.25,6=0.125", MANTA_SCHEDULE_PIECEWISE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        manta_schedule a = schedule_of(cases[i].ours), b = schedule_of(cases[i].keras);
        assert_int_equal(a.kind, cases[i].kind);
        assert_memory_equal(&a, &b, sizeof a);
    }
    assert_true(manta_schedule_at(&(manta_schedule){0}, 3) == 0);
}

static void a_schedule_begins_at_the_rate_and_follows_its_settings(void **state)
{
    manta_schedule s;

    (void)state;
    s = schedule_of("exponential:steps=10,rate=0.5");
    assert_true(manta_schedule_at(&s, 0) == 0.5 && manta_schedule_at(&s, 10) == 0.25);
    s = schedule_of("exponential:steps=10,rate=0.5,initial_learning_rate=0.25");
    assert_true(manta_schedule_at(&s, 0) == 0.25);
    s = schedule_of("piecewise:3=0.25,6=0.125");
    assert_true(manta_schedule_at(&s, 3) == 0.5 && manta_schedule_at(&s, 4) == 0.25 &&
                manta_schedule_at(&s, 7) == 0.125);
    s = schedule_of("cosine:steps=10,warmup=4");
    assert_true(manta_schedule_at(&s, 0) == 0 && manta_schedule_at(&s, 4) == 0.5);
}

static void a_schedule_that_cannot_be_is_refused(void **state)
{
    static const char *const cases[][2] = {
        {"zigzag:steps=3", "no schedule is called 'zigzag'; there are cosine"},
        {"", "no schedule is called ''"},
        {"cosine", "cosine needs steps=N"},
        {"cosine:steps=x", "schedule: 'x' is not a whole number"},
        {"cosine:steps=3,wramup=1", "has no setting 'wramup'; there are: steps, warmup"},
        {"cosine:steps=3,wramup=1", "did you mean warmup?"},
        {"cosine:steps=3,warmup=-1", "warmup is -1, expected 0 or more"},
        {"cosine:steps=3,alpha=low", "'low' is not a number"},
        {"exponential:steps=3,staircase=maybe", "staircase is 'maybe', expected yes or no"},
        {"piecewise", "piecewise needs STEP=RATE pairs"},
        {"piecewise:x=0.1", "'x' is not a whole number"},
        {"piecewise:3=y", "'y' is not a number"},
        {"piecewise:1=1,2=1,3=1,4=1,5=1,6=1,7=1,8=1,9=1,10=1,11=1,12=1,13=1,14=1,15=1,16=1,17=1",
         "too many pieces, expected at most 16"},
        {"cosine:a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a", "at most 32 settings"},
    };
    manta_schedule s = {.decay_steps = 77};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails_with(manta_schedule_named(cases[i][0], 0.5, &s), MANTA_EINVAL, cases[i][1]);
    assert_fails_with(manta_schedule_named("cosine:steps=0", 0.5, &s), MANTA_EINVAL, "decay_steps");
    assert_int_equal(s.decay_steps, 77);
}

/* ---- losses and metrics ---- */

/* A session of a model with so many outputs, whose loss and metrics the words name. */
static manta_status open_with(const char *words, int units, const char *activation, manta_metrics *out)
{
    manta_recipe *r = recipe_of(words);
    manta_model *m = dense_model(units, activation);
    manta_session *s = NULL;
    manta_status st;

    assert_ok(manta_recipe_use(r, m));
    if (!(st = manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, &s))) manta_session_metrics(s, out);
    manta_session_close(s);
    manta_recipe_free(r);
    manta_model_free(m);
    return st;
}

static void every_loss_is_made_by_name(void **state)
{
    static const char *const names[] = {"sparse_categorical_crossentropy",
                                        "SparseCategoricalCrossentropy",
                                        "categorical_crossentropy",
                                        "binary_crossentropy",
                                        "bce",
                                        "mean_squared_error",
                                        "mse",
                                        "MeanSquaredError",
                                        "mean_absolute_error",
                                        "mae",
                                        "huber",
                                        "Huber"};
    manta_metrics m;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char words[96];
        snprintf(words, sizeof words, "loss=%s", names[i]);
        assert_ok(open_with(words, 3, NULL, &m));
        assert_int_equal(m.n, 1); /* a loss that was chosen brings no metric along */
        assert_string_equal(m.name[0], "loss");
    }
    assert_fails_with(open_with("loss=sadness", 3, NULL, &m), MANTA_ENOENT, "sadness");
    assert_fails_with(open_with("loss=mean_squared_eror", 3, NULL, &m), MANTA_ENOENT,
                      "did you mean mean_squared_error?");
}

static void every_metric_is_made_by_name(void **state)
{
    static const struct {
        const char *metric, *loss;
    } cases[] = {
        {"accuracy", "sparse_categorical_crossentropy"},
        {"acc", "categorical_crossentropy"},
        {"sparse_categorical_accuracy", "sparse_categorical_crossentropy"},
        {"categorical_accuracy", "categorical_crossentropy"},
        {"binary_accuracy", "binary_crossentropy"},
        {"top_k_categorical_accuracy", "categorical_crossentropy"},
        {"sparse_top_k_categorical_accuracy", "sparse_categorical_crossentropy"},
        {"mean_squared_error", "mse"},
        {"mae", "mse"},
        {"sparse_categorical_crossentropy", "sparse_categorical_crossentropy"},
        {"categorical_crossentropy", "categorical_crossentropy"},
        {"binary_crossentropy", "binary_crossentropy"},
        {"huber", "huber"},
    };
    manta_metrics m;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[160];
        snprintf(words, sizeof words, "loss=%s metrics=%s", cases[i].loss, cases[i].metric);
        assert_ok(open_with(words, 3, NULL, &m));
        assert_int_equal(m.n, 2);
        assert_string_equal(m.name[1], cases[i].metric);
    }
    assert_ok(open_with("loss=mse metrics=mae,mse,huber", 3, NULL, &m));
    assert_int_equal(m.n, 4);
    assert_fails_with(open_with("metrics=joy", 3, NULL, &m), MANTA_ENOENT, "joy");
    assert_fails_with(open_with("metrics=acuracy", 3, NULL, &m), MANTA_ENOENT, "did you mean accuracy?");
}

static void settings_of_losses_and_metrics_arrive_or_are_refused(void **state)
{
    static const char *const wrong[][3] = {
        {"loss=huber:delta=x", "loss", "loss: 'x' is not a number"},
        {"loss=huber:detla=2", "loss", "did you mean delta?"},
        {"loss=mse:delta=2", "loss", "mse has no setting 'delta'; there are: none"},
        {"loss=bce:from-logits=perhaps", "loss", "from-logits is 'perhaps', expected yes or no"},
        {"metrics=accuracy:k=x", "metrics", "metrics: 'x' is not a whole number"},
        {"metrics=accuracy:k=-1", "metrics", "expected a positive number"},
        {"metrics=a,b,c,d,e,f,g,h,i", "metrics", "too many, expected at most 8"},
    };
    manta_model *m = dense_model(3, NULL);
    manta_recipe *r = recipe_of("loss=CategoricalCrossentropy:from_logits=yes,label_smoothing=0.25 "
                                "metrics=top_k_categorical_accuracy:k=2");
    const manta_compile *c;

    (void)state;
    assert_ok(manta_recipe_use(r, m));
    assert_ok(manta_recipe_compile(r, MANTA_PURPOSE_EVALUATE, &c));
    assert_null(c->optimizer);
    assert_true(c->losses[0].from_logits && c->losses[0].label_smoothing == 0.25f);
    assert_int_equal(c->metrics[0].k, 2);
    assert_ok(manta_recipe_set(r, "loss", "huber:delta=2"));
    assert_ok(manta_recipe_compile(r, MANTA_PURPOSE_EVALUATE, &c));
    assert_true(c->losses[0].delta == 2.0f);
    assert_false(manta_recipe_is_sparse(r));
    assert_ok(manta_recipe_set(r, "loss", "SparseCategoricalCrossentropy"));
    assert_ok(manta_recipe_compile(r, MANTA_PURPOSE_EVALUATE, &c));
    assert_true(manta_recipe_is_sparse(r));
    assert_ok(manta_recipe_compile(r, MANTA_PURPOSE_PREDICT, &c));
    assert_int_equal(c->n_losses, 0);
    manta_recipe_free(r);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        r = recipe_of(wrong[i][0]);
        assert_ok(manta_recipe_use(r, m));
        assert_blames(r, manta_recipe_compile(r, MANTA_PURPOSE_TRAIN, &c), MANTA_EINVAL, wrong[i][1],
                      wrong[i][2]);
        manta_recipe_free(r);
    }
    manta_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RECIPE_TEST(every_setting_is_found_in_its_spellings),
        RECIPE_TEST(what_is_set_can_be_read_and_taken_back),
        RECIPE_TEST(a_setting_that_cannot_be_is_refused_at_once),
        RECIPE_TEST(sentences_speak_as_the_user_writes),
        RECIPE_TEST(every_optimizer_is_made_by_name),
        RECIPE_TEST(every_number_of_an_optimizer_arrives),
        RECIPE_TEST(an_optimizer_that_cannot_be_blames_its_setting),
        RECIPE_TEST(every_schedule_is_made_by_our_name_and_by_keras_s),
        RECIPE_TEST(a_schedule_begins_at_the_rate_and_follows_its_settings),
        RECIPE_TEST(a_schedule_that_cannot_be_is_refused),
        RECIPE_TEST(every_loss_is_made_by_name),
        RECIPE_TEST(every_metric_is_made_by_name),
        RECIPE_TEST(settings_of_losses_and_metrics_arrive_or_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
