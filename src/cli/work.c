/* work.c - from options to the library's recipe. */
#include "cli/work.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"

const option_group work_data_options = {"Data:", (const cli_option[]){SETTING("scale"),
                                                                      SETTING("normalize"),
                                                                      SETTING("raw"),
                                                                      SETTING("resize"),
                                                                      SETTING("crop"),
                                                                      SETTING("channels"),
                                                                      {0}}};

const option_group work_run_options = {"Computing:", (const cli_option[]){SETTING("workers"),
                                                                          SETTING("threads-per-worker"),
                                                                          SETTING("kernels"),
                                                                          SETTING("precision"),
                                                                          SETTING("device"),
                                                                          SETTING("debug"),
                                                                          {0}}};

const option_group work_loss_options = {"Loss and metrics:",
                                        (const cli_option[]){SETTING("loss"), SETTING("metrics"), {0}}};

const option_group work_optimizer_options = {
    "Optimizer (names and defaults are Keras's; torch.NAME takes PyTorch's):",
    (const cli_option[]){SETTING("optimizer"),
                         SETTING("learning-rate"),
                         SETTING("lr-schedule"),
                         SETTING("momentum"),
                         SETTING("nesterov"),
                         SETTING("dampening"),
                         SETTING("beta-1"),
                         SETTING("beta-2"),
                         SETTING("epsilon"),
                         SETTING("rho"),
                         SETTING("amsgrad"),
                         SETTING("centered"),
                         SETTING("weight-decay"),
                         SETTING("clipvalue"),
                         SETTING("clipnorm"),
                         SETTING("global-clipnorm"),
                         SETTING("gradient-accumulation"),
                         SETTING("ema"),
                         SETTING("ema-overwrite"),
                         {0}}};

manta_recipe *work_recipe(const options *o)
{
    manta_recipe *r = manta_recipe_new("--");
    const cli_option *option;
    const char *text;

    for (int i = 0; options_at(o, i, &option, &text); i++) {
        if (!text || !manta_setting_find(option->name)) continue;
        if (manta_recipe_set(r, option->name, text)) cli_usage("%s", manta_error_text());
    }
    return r;
}

manta_status work_done(const manta_recipe *r, manta_status st)
{
    if (st && manta_recipe_fault(r)) cli_usage("%s", manta_error_text());
    return st;
}

const char *work_number(int64_t n, char *buf, size_t size)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%" PRId64, n);
    size_t at = 0;

    for (int i = 0; i < length && at + 2 < size; i++) {
        if (i && (length - i) % 3 == 0 && digits[i - 1] != '-') buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}
