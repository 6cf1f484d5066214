/* test_cuda_ranks.c: multi-rank trainings that stay on their devices. Ranks are processes with fake
 * GPUs (tests/fake/gpu): asynchronous streams, captures, and sums that wait forever for a failed
 * peer. */
#include "tests/worker/comm/ranks.h"

#include <math.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "tests/fake/gpu/fake_gpu.h"
#include "worker/backend/cuda/plan/plan.h"
#include "worker/process/exit_reason.h"
#include "worker/train/trainer.h"
#include "worker/train/trainer_state.h"

enum { STEPS_MAX = 40, WEIGHTS_MAX = 4000, BATCH = 12 };

/* Results of a rank in one generation. */
typedef struct part {
    gp_train_done done;
    uint32_t records, first, last; /* reported steps */
    float weights[WEIGHTS_MAX];
    bool held;
} part;

typedef struct result {
    part parts[2]; /* first group, and group after a failure */
    double losses[STEPS_MAX];
    uint32_t heard[STEPS_MAX];  /* number of reports per step */
    uint64_t early[4], late[4]; /* host, device and pinned allocations, and graphs */
    char plans[2][4096];        /* plans for each group; "": by rule */
    uint64_t engines[2][5];     /* runs per cuDNN engine during each group's steps */
    uint64_t raced[2][5];       /* runs before those steps */
    uint32_t violations, left;  /* left: blocks, streams, events and graphs that were not freed */
    char warning[480];          /* the last one that the client receives */
} result;

typedef struct job {
    char data[64], options[512], fault[64], device_fault[96], words[32];
    uint32_t stop_rank, stop_step, fault_rank;
    bool again;   /* all ranks except fault_rank form another group */
    bool pauses;  /* the request at stop_step is a pause */
    bool tunes;   /* engines are timed; rank k finds engine 3 + k % 2 fastest; no disk cache */
    bool refused; /* NCCL refuses the group: all ranks are on one GPU */
    size_t count;
    result results[SLOT_MAX];
} job;

static job *shared; /* shared memory of all processes in a test */
static const char *bucket_bytes = "4096";

static job *job_new(uint32_t steps, const char *options)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    snprintf(shared->data, sizeof(shared->data), "synthetic:6x6x2:4:%u", steps * BATCH);
    snprintf(
        shared->options, sizeof(shared->options),
        "{\"max-epochs\":1,\"mini-batch-size\":%d,\"shuffle\":\"never\",\"exchange-bucket-bytes\":%s%s%s}",
        BATCH, bucket_bytes, options[0] == '\0' ? "" : ",", options);
    return shared;
}

static void job_free(job *j)
{
    munmap(j, sizeof(*j));
}

/* ---- one rank ---- */

typedef struct watcher {
    result *result;
    part *part;
    gp_train_control *control;
    uint32_t slot;
} watcher;

static void counts_take(uint64_t counts[4])
{
    counts[0] = gp_alloc_get_stats().calls;
    counts[1] = fake_gpu_count("cudaMalloc") + fake_gpu_count("ncclMemAlloc");
    counts[2] = fake_gpu_count("cudaHostAlloc");
    counts[3] = fake_gpu_count("cudaGraphInstantiate");
}

static void watch_record(void *context, const gp_train_record *record)
{
    watcher *w = context;

    if (record->step > STEPS_MAX)
        return;
    if (w->part->records++ == 0)
        w->part->first = (uint32_t)record->step;
    w->part->last = (uint32_t)record->step;
    w->result->losses[record->step - 1] = record->loss;
    w->result->heard[record->step - 1]++;
    if (record->step == 3)
        counts_take(w->result->early);
    counts_take(w->result->late);
    if (shared->stop_step == record->step && shared->stop_rank == w->slot)
        atomic_store(shared->pauses ? &w->control->pause : &w->control->stop, 1);
}

static void watch_validation(void *context, const gp_train_validation *validation)
{
    (void)context;
    (void)validation;
}

static void watch_note(void *context, const char *text, bool warning)
{
    const watcher *w = context;

    if (warning)
        snprintf(w->result->warning, sizeof(w->result->warning), "%s", text);
    if (warning && !shared->refused)
        GP_TEST_FAIL("unexpected warning: %s", text);
}

static const char network[] =
    "{\"name\":\"small\",\"input\":[2,6,6],\"scale\":[0.00392156862745098],\"offset\":[-0.4],\"layers\":["
    "{\"name\":\"c1\",\"kind\":\"conv2d\",\"channels\":6,\"kernel\":[3,3]},"
    "{\"name\":\"r1\",\"kind\":\"relu\"},{\"name\":\"f1\",\"kind\":\"fc\",\"outputs\":16},"
    "{\"name\":\"r2\",\"kind\":\"relu\"},{\"name\":\"d1\",\"kind\":\"dropout\",\"rate\":0.2},"
    "{\"name\":\"f2\",\"kind\":\"fc\",\"outputs\":4},{\"name\":\"loss\",\"kind\":\"crossentropy\"}]}";

/* Store the engine runs since `before`, and update `before`. */
static void engines_count(uint64_t engines[5], uint64_t before[5])
{
    char name[32];

    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof(name), "cudnnEngine%d", i);
        engines[i] = fake_gpu_count(name) - before[i];
        before[i] += engines[i];
    }
}

/* Train one generation. Return the state held for the next one. */
static gp_carry_over *train(rank_place *place, gp_backend *backend, gp_train_control *control,
                            uint32_t generation, const uint32_t *order, uint32_t world, gp_carry_over *held)
{
    result *out = &shared->results[place->slot];
    watcher w = { out, &out->parts[generation - 1], control, place->slot };
    const gp_train_sink sink = { &w, watch_record, watch_validation, watch_note, NULL };
    gp_train_begin begin = { .workers = world, .restart = generation - 1 };
    gp_comm_member members[SLOT_MAX];
    gp_comm_rendezvous group = { .lease = 77,
                                 .generation = generation,
                                 .world = world,
                                 .members = members,
                                 .ops = &place_ops,
                                 .context = place };
    static uint64_t runs[5];
    gp_train_ready ready;
    gp_trainer *trainer;
    gp_error err = { 0 };
    size_t count;

    for (uint32_t rank = 0; rank < world; rank++) {
        members[rank] = place->board->members[order[rank]];
        if (order[rank] == place->slot)
            group.rank = rank;
    }
    place->generation = generation;
    place->order = order;
    place->world = world;
    snprintf(begin.data, sizeof(begin.data), "%s", shared->data);
    if (gp_trainer_new(&trainer, &ready,
                       &(gp_trainer_setup){ .begin = &begin,
                                            .netspec = network,
                                            .netspec_bytes = strlen(network),
                                            .options = shared->options,
                                            .options_bytes = strlen(shared->options),
                                            .held = held,
                                            .group = &group,
                                            .backend_ops = &gp_backend_cuda,
                                            .backend = backend,
                                            .control = control },
                       &err) != GP_OK) {
        GP_TEST_FAIL("%s", err.message);
        return NULL;
    }
    CHECK(trainer->pipeline.residency == (shared->refused ? GP_ON_HOST : GP_ON_BOTH));
    gp_carry_over_free(held);
    engines_count(out->raced[generation - 1], runs);
    gp_trainer_run(trainer, &sink, &w.part->done);
    engines_count(out->engines[generation - 1], runs);
    snprintf(out->plans[generation - 1], sizeof(out->plans[0]), "%s",
             trainer->tuning.document == NULL ? "" : trainer->tuning.document);
    const float *weights = gp_trainer_weights(trainer, &count);

    CHECK(count <= WEIGHTS_MAX);
    shared->count = count;
    memcpy(w.part->weights, weights, count * sizeof(float));
    held = gp_trainer_hold(trainer, 77);
    w.part->held = held != NULL;
    gp_trainer_free(trainer);
    return held;
}

static void rank_body(rank_place *place)
{
    uint32_t survivors[SLOT_MAX], count = 0;
    gp_train_control control;
    gp_carry_over *held;
    gp_backend *backend;
    gp_error err = { 0 };
    char host[16];

    snprintf(host, sizeof(host), "h%u", shared->refused ? 0 : place->slot);
    setenv("NCCL_HOSTID", host, 1);
    if (shared->tunes) {
        setenv("FAKE_GPU_ENGINES", "5", 1);
        setenv("FAKE_GPU_ENGINE_US",
               place->slot % 2 == 0 ? "900000,0,0,100000,500000" : "900000,0,0,500000,100000", 1);
        setenv("XDG_CACHE_HOME", "/dev/null", 1);
    }

    /* ignores the disk cache */
    setenv("GRADPOOL_AUTOTUNE_SECONDS", shared->tunes ? "3600" : "0", 1);
    REQUIRE_OK(gp_fault_setup(shared->fault, GP_FAULT_worker, place->slot + 1, 1, &err), err);
    gp_train_control_init(&control);
    REQUIRE_OK(
        gp_backend_cuda.open(&backend, &(gp_backend_options){ .threads = 1, .kernels = shared->words }, &err),
        err);
    if (shared->device_fault[0] != '\0' && shared->fault_rank == place->slot)
        fake_gpu_faults(shared->device_fault);
    held = train(place, backend, &control, 1, in_order, place->slots, NULL);
    if (shared->again && place->slot != shared->fault_rank) {
        gp_train_control_reset(&control);
        for (uint32_t slot = 0; slot < place->slots; slot++)
            if (slot != shared->fault_rank)
                survivors[count++] = slot;
        held = train(place, backend, &control, 2, survivors, count, held);
    }
    gp_carry_over_free(held);
    gp_backend_cuda.close(backend);
    gp_train_control_deinit(&control);
    shared->results[place->slot].violations = fake_gpu_violations();
    shared->results[place->slot].left = fake_gpu_blocks() + fake_gpu_streams();
}

static void check_violations(uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++) {
        CHECK_INT(0, shared->results[r].violations);
        CHECK_INT(0, shared->results[r].left);
    }
}

/* ---- tests ---- */

/* Run the ranks and compare them with each other, and with a rank alone. */
static void check_ranks(uint32_t ranks, job *j, const result *alone)
{
    double difference = 0, norm = 0;

    run_ranks(ranks, rank_body);
    for (uint32_t r = 0; r < ranks; r++) {
        if (j->results[r].parts[0].done.status != GP_OK)
            GP_TEST_FAIL("rank %u: %s", r, j->results[r].parts[0].done.message);
        CHECK_INT(9, j->results[r].parts[0].records);
        CHECK(memcmp(j->results[0].parts[0].weights, j->results[r].parts[0].weights,
                     sizeof(j->results[0].parts[0].weights)) == 0);
    }
    for (int s = 0; s < 9; s++)
        CHECK_NEAR(alone->losses[s], j->results[0].losses[s], 1e-4);
    for (size_t i = 0; i < j->count; i++) {
        difference += pow((double)alone->parts[0].weights[i] - (double)j->results[0].parts[0].weights[i], 2);
        norm += pow((double)alone->parts[0].weights[i], 2);
    }
    CHECK(difference <= 1e-8 * norm);
    check_violations(ranks);
}

static void check_world(uint32_t ranks, const char *options, const char *words, const result *alone)
{
    job *j = job_new(9, options);

    snprintf(j->words, sizeof(j->words), "%s", words);
    check_ranks(ranks, j, alone);
    job_free(j);
}

static result alone_run(const char *options)
{
    job *j = job_new(9, options);

    run_ranks(1, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)j->results[0].parts[0].done.status);
    check_violations(1);
    result alone = j->results[0];

    job_free(j);
    return alone;
}

TEST(several_ranks_match_one_rank_and_are_bitwise_identical)
{
    static result alone;

    alone = alone_run("\"solver\":\"adam\"");
    check_world(2, "\"solver\":\"adam\"", "", &alone);
    check_world(3, "\"solver\":\"adam\"", "fed", &alone);
    check_world(2, "\"solver\":\"adam\",\"micro-batch-size\":4", "", &alone);

    /* 3 3 2 2 2: calls of different sizes */
    check_world(5, "\"solver\":\"adam\",\"micro-batch-size\":2", "fed", &alone);
    check_world(2, "\"solver\":\"adam\"", "eager", &alone);
}

/* In the last step of an epoch, which has 5 samples instead of 12, rank 0 has two calls and rank 1
 * has one. In other steps both have three. */
TEST(ranks_with_different_calls_in_a_short_step_use_graphs_of_one_recording)
{
    job *j = job_new(3, "");

    snprintf(j->data, sizeof(j->data), "synthetic:6x6x2:4:%d", 2 * BATCH + 5);
    snprintf(
        j->options, sizeof(j->options),
        "{\"max-epochs\":3,\"mini-batch-size\":%d,\"micro-batch-size\":2,\"exchange-bucket-bytes\":4096}",
        BATCH);
    run_ranks(2, rank_body);
    for (uint32_t r = 0; r < 2; r++) {
        if (j->results[r].parts[0].done.status != GP_OK)
            GP_TEST_FAIL("rank %u: %s", r, j->results[r].parts[0].done.message);
        CHECK_INT(9, j->results[r].parts[0].records);
    }
    check_violations(2);
    job_free(j);
}

TEST(ranks_that_nccl_refuses_exchange_through_the_host_and_report_it)
{
    static result alone;
    job *j;

    alone = alone_run("\"solver\":\"adam\"");
    j = job_new(9, "\"solver\":\"adam\"");
    j->refused = true;
    check_ranks(2, j, &alone);
    CHECK_CONTAINS(j->results[0].warning, "so gradients go through host memory: NCCL's join failed: ");
    CHECK_CONTAINS(j->results[0].warning,
                   "(NCCL error 5); NCCL's last warning: Duplicate GPU detected : rank 0 and");
    CHECK_TEXT("", j->results[1].warning); /* rank 0 reports for all */
    job_free(j);
}

TEST(steps_allocate_no_memory)
{
    job *j = job_new(30, "\"micro-batch-size\":4");

    run_ranks(2, rank_body);
    for (uint32_t r = 0; r < 2; r++)
        for (int k = 0; k < 4; k++)
            CHECK_INT(j->results[r].early[k], j->results[r].late[k]);
    CHECK(j->results[0].early[3] > 0);
    job_free(j);
}

TEST(all_ranks_stop_at_the_same_step_regardless_of_the_rank_asked)
{
    job *j = job_new(30, "");

    j->stop_rank = 1;
    j->stop_step = 4;
    run_ranks(3, rank_body);
    for (uint32_t r = 0; r < 3; r++) {
        const gp_train_done *done = &j->results[r].parts[0].done;

        CHECK_STATUS(GP_OK, (gp_status)done->status);
        CHECK_INT(GP_STOP_STOPPED, done->stop_reason);
        CHECK_INT(j->results[0].parts[0].done.step, done->step);
        CHECK(done->step > 4 && done->step < 10);
        CHECK(memcmp(j->results[0].parts[0].weights, j->results[r].parts[0].weights,
                     sizeof(j->results[0].parts[0].weights)) == 0);
    }
    check_violations(3);
    job_free(j);
}

/* Pause as for a change of the group. All ranks continue here, so a bitwise comparison detects lost
 * state. */
static void check_pause(const char *options)
{
    static result undisturbed;
    job *j = job_new(12, options);

    run_ranks(3, rank_body);
    undisturbed = j->results[0];
    job_free(j);
    j = job_new(12, options);
    j->stop_rank = 2;
    j->stop_step = 5;
    j->pauses = j->again = true;
    j->fault_rank = UINT32_MAX;
    run_ranks(3, rank_body);
    for (uint32_t r = 0; r < 3; r++) {
        const part *first = &j->results[r].parts[0], *second = &j->results[r].parts[1];

        CHECK_STATUS(GP_OK, (gp_status)first->done.status);
        CHECK_INT(GP_STOP_PAUSED, first->done.stop_reason);
        CHECK_INT(j->results[0].parts[0].done.step, first->done.step);
        CHECK(first->held && first->done.step > 5 && first->done.step < 12);
        CHECK_INT(first->done.step + 1, second->first);
        CHECK_INT(12, second->done.step);
        CHECK(memcmp(undisturbed.parts[0].weights, second->weights, sizeof(second->weights)) == 0);
    }
    check_violations(3);
    job_free(j);
}

/* In fp16 with a scale that changes in most steps: the next group has the same scale and the same
 * count of good steps. */
TEST(paused_ranks_continue_in_another_group_bitwise_identically)
{
    check_pause("\"solver\":\"adam\"");
    check_pause("\"solver\":\"adam\",\"precision\":\"fp16\",\"loss-scale\":1e8,\"loss-scale-interval\":3");
}

/* Compute the weights after `steps` steps on `ranks` ranks. */
static void weights_after(uint32_t steps, uint32_t ranks, float *weights)
{
    job *kept = shared,
        *j = job_new(steps == 0 ? 1 : steps, steps == 0 ? "\"initial-learn-rate\":1e-30" : "");

    run_ranks(ranks, rank_body);
    if (j->results[0].parts[0].done.status != GP_OK)
        GP_TEST_FAIL("%s", j->results[0].parts[0].done.message);
    CHECK_INT(steps == 0 ? 1 : steps, j->results[0].parts[0].done.step);
    memcpy(weights, j->results[0].parts[0].weights, sizeof(j->results[0].parts[0].weights));
    job_free(j);
    shared = kept;
}

/* Compare weights, except for the effect of a rate of 1e-30 on zeros. */
static bool weights_same(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-25f))
            return false;
    return true;
}

/* Wait for all ranks. Rank `dead` must exit with `code`; -1: by SIGKILL. */
static void join_but_one(rank_family *family, uint32_t dead, int code)
{
    for (uint32_t slot = 0; slot < family->slots; slot++) {
        int status = 0;

        CHECK_INT(family->pids[slot], waitpid(family->pids[slot], &status, 0));
        if (slot != dead)
            CHECK_INT(0, status);
        else if (code < 0)
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
    }
    family_close(family);
}

static void check_death(const char *fault, const char *device_fault)
{
    enum { RANKS = 3, DEAD = 1, STEPS = 10 };
    static float expected[WEIGHTS_MAX];
    static result alone;
    job *j = job_new(STEPS, "");
    rank_family family;
    uint32_t least = UINT32_MAX, most = 0;

    snprintf(j->fault, sizeof(j->fault), "%s", fault);
    snprintf(j->device_fault, sizeof(j->device_fault), "%s", device_fault);
    j->fault_rank = DEAD;
    j->again = true;
    family_open(&family, RANKS);
    family_fork(&family, rank_body);
    join_but_one(&family, DEAD, device_fault[0] == '\0' ? -1 : GP_EXIT_DEVICE_LOST);
    for (uint32_t r = 0; r < RANKS; r++) {
        const part *first = &j->results[r].parts[0], *second = &j->results[r].parts[1];

        if (r == DEAD)
            continue;
        if (first->done.status != GP_EPEER)
            GP_TEST_FAIL("rank %u: %u, %s", r, first->done.status, first->done.message);
        CHECK(first->held);
        least = first->done.step < least ? (uint32_t)first->done.step : least;
        most = first->done.step > most ? (uint32_t)first->done.step : most;
        weights_after((uint32_t)first->done.step, RANKS, expected);
        if (!weights_same(expected, first->weights, j->count))
            GP_TEST_FAIL("%s%s: rank %u reports step %u, but the weights differ from that step's", fault,
                         device_fault, r, (uint32_t)first->done.step);
        CHECK_STATUS(GP_OK, (gp_status)second->done.status);
        CHECK_INT(STEPS, second->done.step);
    }
    CHECK(most - least <= 1);
    job *again = shared;

    alone = alone_run("");
    shared = again;
    for (int s = 0; s < STEPS; s++) {
        const uint32_t heard[2] = { j->results[0].heard[s], j->results[2].heard[s] };

        /* One rank alone may report the step of the failure; the other one then takes over that
         * state. The client accepts a report from any rank. */
        CHECK(heard[0] + heard[1] >= 1 && heard[0] <= 1 && heard[1] <= 1);
        for (uint32_t k = 0; k < 2 && s < 9; k++)
            if (heard[k] != 0)
                CHECK_NEAR(alone.losses[s], j->results[2 * k].losses[s], 1e-3);
    }
    for (uint32_t r = 0; r < RANKS; r += 2)
        CHECK_INT(0, j->results[r].violations + j->results[r].left);
    job_free(j);
}

TEST(ranks_continue_from_a_complete_step_after_a_kill)
{
    check_death("forward:1:kill@2", "");
    check_death("forward:5:kill@2", "");
    check_death("exchange:4:kill@2", "");
    check_death("commit:3:kill@2", "");
}

TEST(ranks_do_not_wait_forever_for_a_group_that_does_not_end)
{
    setenv("GRADPOOL_GPU_TIMEOUT", "3", 1);
    fake_gpu_faults("ncclCommReclaim:1=hang");
    check_death("exchange:4:kill@2", "");
    fake_gpu_faults(NULL);
    unsetenv("GRADPOOL_GPU_TIMEOUT");
}

/* The share of one rank never ends, so that worker exits, which the others detect. They wait in a
 * sum after their own share (the fake device has one lane for a whole graph). */
TEST(rank_with_a_hung_device_exits_and_the_others_continue)
{
    bucket_bytes = "1048576";
    setenv("GRADPOOL_GPU_TIMEOUT", "3",
           1); /* s; the other fake devices are threads and may wait for a core */
    check_death("", "cudaGraphLaunch:3=hang");
    unsetenv("GRADPOOL_GPU_TIMEOUT");
    bucket_bytes = "4096";
}

/* After an illegal access, every call to the device fails. */
TEST(rank_with_a_failed_device_exits_and_the_others_continue)
{
    check_death("", "cudaGraphLaunch:4=700");
}

/* ---- engines ---- */

static void check_engines(const result *r, int group, int engine)
{
    CHECK(r->engines[group][engine] > 0);
    for (int i = 0; i < 5; i++)
        if (i != engine)
            CHECK_INT(0, r->engines[group][i]);
}

TEST(all_ranks_use_the_engines_chosen_by_rank_0)
{
    job *j = job_new(9, "");

    j->tunes = true;
    run_ranks(3, rank_body);
    CHECK(j->results[0].raced[0][3] > 0 && j->results[0].raced[0][4] > 0);
    for (int r = 0; r < 3; r++) {
        CHECK_STATUS(GP_OK, (gp_status)j->results[r].parts[0].done.status);
        check_engines(&j->results[r], 0, 3);
        CHECK_TEXT(j->results[0].plans[0], j->results[r].plans[0]);
        CHECK(r == 0 || j->results[r].raced[0][3] + j->results[r].raced[0][4] == 0);
        CHECK(memcmp(j->results[0].parts[0].weights, j->results[r].parts[0].weights,
                     sizeof(j->results[0].parts[0].weights)) == 0);
    }
    check_violations(3);
    job_free(j);
}

/* Rank 0 pauses with the others and does not return. The new rank 0 would have chosen another
 * engine. */
TEST(next_group_uses_the_same_engines_without_autotuning)
{
    job *j = job_new(12, "\"micro-batch-size\":3");

    j->tunes = j->again = j->pauses = true;
    j->stop_step = 4;
    j->fault_rank = 0;
    run_ranks(3, rank_body);
    for (int r = 1; r < 3; r++) {
        CHECK_STATUS(GP_OK, (gp_status)j->results[r].parts[1].done.status);
        CHECK_INT(0, j->results[r].raced[1][3] + j->results[r].raced[1][4]);
        check_engines(&j->results[r], 1, 3);
        CHECK_TEXT(j->results[0].plans[0], j->results[r].plans[1]);
    }
    job_free(j);
}
