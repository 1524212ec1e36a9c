/* cmd_train.c - manta train: its options, and the order of things. */
#include "cli/cli.h"
#include "cli/resume.h"
#include "cli/scale.h"
#include "cli/stop.h"
#include "cli/training.h"

static const option_group training_options = {
    "Training:", (const cli_option[]){
                     SETTING("data"),
                     SETTING("validation"),
                     SETTING("validation-split"),
                     SETTING("epochs"),
                     SETTING("initial-epoch"),
                     SETTING("steps-per-epoch"),
                     SETTING("validation-steps"),
                     SETTING("batch"),
                     SETTING("global-batch"),
                     SETTING("no-shuffle"),
                     SETTING("augment"),
                     SETTING("class-weight"),
                     SETTING("seed"),
                     SETTING("shards"),
                     SETTING("strategy"),
                     SETTING("servers"),
                     SETTING("staleness"),
                     SETTING("batch-norm"),
                     {"config", OPTION_TEXT, "FILE",
                      "JSON object with options by their long names (and \"model\"); the command line wins"},
                     {0}}};

static const option_group weights = {
    "Weights:", (const cli_option[]){
                    SETTING("weights"),
                    SETTING("reset-optimizer"),
                    SETTING("freeze"),
                    {"save", OPTION_TEXT, "FILE",
                     "Write weights and optimizer state here at the end, also after Ctrl-C: .keras (with the "
                     "model), .npz, ..."},
                    {0}}};

static const option_group cluster = {
    "Several hosts (with TF_CONFIG in the environment):",
    (const cli_option[]){{"cluster-key", OPTION_TEXT, "FILE",
                          "The key that all processes of the cluster share; on one host it is found, and "
                          "made on first use, by "
                          "itself"},
                         {"cluster-timeout", OPTION_COUNT, "SECONDS",
                          "Give up when others are missing or silent for so long; 600 when not given"},
                         {"insecure-bulk", OPTION_FLAG, NULL,
                          "Send gradients and weights unencrypted, after an authenticated handshake"},
                         {0}}};

static const option_group output = {
    "Output:",
    (const cli_option[]){{"json", OPTION_FLAG, NULL, "One JSON object a line instead of a progress bar"},
                         {"rates", OPTION_FLAG, NULL,
                          "Show how fast each worker trains, and how much of its time it computes instead "
                          "of waiting for others"},
                         {"profile", OPTION_COUNT, "STEPS",
                          "Train so many steps, print where the time of a step goes, node by node (with "
                          "--workers: of each worker, waiting for data and for others, computing and "
                          "updating), and end"},
                         {"profile-trace", OPTION_TEXT, "FILE",
                          "Where --profile writes its Chrome trace; manta-trace.json when not given"},
                         SETTING("max-failures"),
                         {0}}};

static int run_train(const options *o)
{
    training r = {.o = o, .json = options_flag(o, "json")};
    options *taken_up = NULL;
    int status;

    if (resume_options(o, &taken_up)) return training_failed(&r);
    if (taken_up) r.o = taken_up;
    training_read(&r);
    progress_init(&r.progress);
    cli_outlive_readers(); /* who reads along may leave: then there is a checkpoint to write */
    stop_install();
    scale_install();
    if (training_open(&r)) {
        status = training_failed(&r);
    } else {
        training_introduce(&r);
        status = training_finish(&r, training_run(&r));
    }
    training_close(&r);
    options_free(taken_up);
    return status;
}

const command cmd_train = {
    .name = "train",
    .args = "MODEL --data D",
    .about = "Train a model",
    .text =
        "MODEL is a .keras file, a Keras config.json, an .h5 file with a model, or a name of the zoo ('manta "
        "model' lists them). A file brings its weights, optimizer state, loss and metrics along. "
        "D is mnist or fashion-mnist (their training part, as numbers in [0,1]; mnist:test is the other), "
        "x.npy,y.npy, f.npz:x,y, f.csv:x=A+B,y=C, images-idx3,labels-idx1, TFRecord "
        "('part-*.tfrecord:x=image@28x28,y=label'), tar archives as WebDataset has them "
        "('f-{00..09}.tar:jpg,cls'), "
        "Parquet (f.parquet:x=A+B,label=C), or a folder with a sub-folder of PNG or JPEG files per class; "
        "'manta "
        "inspect D' shows what is in one.\n\n"
        "What is not given comes from the model: mnist-cnn, mlp and resnet18 take sparse categorical "
        "cross-entropy from logits, accuracy and adam with rate 0.001 (resnet18 also --normalize 0.5,0.5); "
        "autoencoder takes the mean squared error to its own input, and adam; linear takes the mean squared "
        "error "
        "and sgd with rate 0.01.\n\n"
        "Ctrl-C ends after the current step, saves a checkpoint and what --save asks for, and exits with "
        "status "
        "130; a second one ends at once. SIGTERM does the same, with status 75 when the run can be "
        "resumed; a second SIGTERM changes nothing. When nobody reads the output any more ('manta train ... "
        "| head -1') the same is done, and "
        "the "
        "program ends by SIGPIPE, which a shell calls status 141.\n\n"
        "'manta train --resume NAME' goes on with a run from its last checkpoint, with the options that it "
        "was "
        "begun with, to the bytes that it would have ended with. Options that are given again must be the "
        "same, but for those that leave the result as it is: --epochs, --workers (the samples of a step and "
        "its shards stay), --threads-per-worker, --kernels, --device, --debug, --max-failures, "
        "--checkpoint-every, "
        "--keep, --keep-best, --save and those of a cluster. Names of files are looked for where the command "
        "is given, as ever.",
    .examples = "  manta train mnist-cnn --data mnist --validation mnist:test --epochs 3 --batch 64\n"
                "  manta train resnet18 --data fashion-mnist --batch 64 --save fashion.npz\n"
                "  manta train mlp --data mnist --optimizer sgd --learning-rate 0.1 "
                "--lr-schedule cosine:steps=9000,warmup=900\n"
                "  manta train mnist-cnn --data mnist --batch 64 --profile 20\n"
                "  manta train mnist-cnn --data mnist --epochs 10 --workers 2 --name first\n"
                "  manta train --resume first --epochs 20",
    .max_args = 1,
    .groups = {&training_options, &work_loss_options, &work_optimizer_options, &work_data_options, &weights,
               &work_run_options, &cluster, &record_options, &output},
    .run = run_train,
};
