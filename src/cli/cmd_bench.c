/* cmd_bench.c - manta bench. */
#include <stdio.h>

#include <manta/tool_bench.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/work.h"

static const option_group benching = {
    "Benchmark:",
    (const cli_option[]){
        {"model", OPTION_TEXT, "NAME", "The zoo model to train; mnist-cnn when not given"},
        {"batch", OPTION_COUNT, "B", "Samples of a step; 64 when not given"},
        {"steps", OPTION_COUNT, "S", "Steps to time; 100 when not given"},
        {"forward", OPTION_FLAG, NULL, "Inference only"},
        {"optimizer", OPTION_TEXT, "NAME", "adam for resnet18 and sgd for the others when not given"},
        {"workers", OPTION_COUNT, "N",
         "Processes that train together, each with a batch of its own; 1 when not given"},
        {"threads-per-worker", OPTION_COUNT, "T",
         "Threads of a worker; the cores divided by the workers when not given"},
        {"kernels", OPTION_TEXT, "K", "auto, reference, avx2, avx512 or onednn"},
        {"precision", OPTION_TEXT, "P",
         "exact, float32 or mixed_bfloat16; exact when not given, and float32 on a GPU"},
        {"device", OPTION_TEXT, "D", "cpu, gpu or auto; cpu when not given"},
        {"json", OPTION_FLAG, NULL, "One JSON object instead of lines for people"},
        {0}}};

static int bench_train(const options *o)
{
    const char *model = options_text(o, "model");
    manta_bench_options b = {.threads = (int)options_int(o, "threads-per-worker", 0),
                             .workers = (int)options_int(o, "workers", 1),
                             .batch = options_int(o, "batch", 64),
                             .steps = options_int(o, "steps", 100),
                             .forward = options_flag(o, "forward"),
                             .kernels = options_text(o, "kernels"),
                             .precision = options_text(o, "precision"),
                             .device = options_text(o, "device"),
                             .optimizer = options_text(o, "optimizer")};
    manta_model *m;
    manta_bench_result r;

    if (!model) model = "mnist-cnn";
    if (manta_model_open(model, NULL, &m)) return cli_fail();
    manta_model_free(m);
    if (manta_bench_train(model, &b, &r)) return cli_fail();
    if (options_flag(o, "json")) {
        json_emit(json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:i}", "row", r.row, "images_per_s",
                            json_number(r.images_per_s), "ms_per_step", json_number(r.ms_per_step),
                            "gemm_share", json_number(r.gemm_share), "gflops", json_number(r.gflops),
                            "gemm_gflops", json_number(r.gemm_gflops), "device_ms", json_number(r.device_ms),
                            "device_kernels", r.device_kernels));
        return CLI_DONE;
    }
    print_out("%s\n", r.row);
    print_out("%.0f images/s, %.3f ms/step (median of %lld steps)\n", r.images_per_s, r.ms_per_step,
              (long long)b.steps);
    if (r.device_ms > 0)
        print_out("%.3f ms/step of %d kernels, played one step behind the other without the host\n",
                  r.device_ms, r.device_kernels);
    if (r.gemm_gflops > 0)
        print_out("%.1f GFLOP/s, %.0f %% of this machine's best matrix product (%.1f GFLOP/s)\n", r.gflops,
                  100 * r.gemm_share, r.gemm_gflops);
    return CLI_DONE;
}

const command cmd_bench_train = {
    .name = "bench train",
    .args = "",
    .about = "Time the training step of a model",
    .text =
        "Trains a zoo model on made-up data that lies in memory, and prints the rate of the median step "
        "beside the "
        "rate of this machine's best matrix product; on a GPU, beside the time of the step's kernels alone.",
    .examples = "  manta bench train --model resnet18 --batch 64 --steps 50\n"
                "  manta bench train --model mnist-cnn --forward --batch 256 --json",
    .groups = {&benching},
    .run = bench_train,
};

/* ---- bench comm ---- */

enum { MOST_ROUNDS = 1000000 }; /* of a row of bench comm: an hour */

static const option_group comm_benching = {
    "Benchmark:",
    (const cli_option[]){
        {"row", OPTION_TEXT, "TEXT", "Only rows with TEXT in their name, or over shm, tcp or tls"},
        {"rounds", OPTION_COUNT, "R", "Rounds of each row; as many as take about a second when not given"},
        {"json", OPTION_FLAG, NULL, "One JSON object a row instead of lines for people"},
        {0}}};

static void comm_row_json(void *user, const manta_bench_comm_row *r)
{
    (void)user;
    json_emit(json_pack("{s:s, s:s, s:I, s:i, s:o, s:o}", "row", r->row, "over", r->over, "floats",
                        (json_int_t)r->floats, "ranks", 2, "ms", json_number(r->ms), "gb_per_s",
                        json_number(r->gb_per_s)));
}

static void comm_row_text(void *user, const manta_bench_comm_row *r)
{
    (void)user;
    print_out("%-4s %-26s %9lld floats  %9.4f ms  %6.2f GB/s\n", r->over, r->row, (long long)r->floats, r->ms,
              r->gb_per_s);
    cli_flush();
}

static int bench_comm(const options *o)
{
    bool json = options_flag(o, "json");
    int64_t rounds = options_int(o, "rounds", 0);

    if (rounds > MOST_ROUNDS)
        cli_usage("--rounds: %lld, expected at most %d", (long long)rounds, MOST_ROUNDS);
    if (manta_bench_comm(options_text(o, "row"), (int)rounds, json ? comm_row_json : comm_row_text, NULL))
        return cli_fail();
    return CLI_DONE;
}

const command cmd_bench_comm = {
    .name = "bench comm",
    .args = "",
    .about = "Time collectives between two processes",
    .text = "Times all-reduce in shared memory and over loopback TCP without and with encryption, and "
            "all-reduce fused with the optimizer's update, beside a pass over the same bytes and a bare "
            "exchange over the same kind of socket. What was timed is checked.",
    .examples = "  manta bench comm\n"
                "  manta bench comm --row fused --json",
    .groups = {&comm_benching},
    .run = bench_comm,
};
