/* test_backend_calls.c: kernel-independent guarantees of plan calls: how batches may be split, when
 * gradients are announced, and that no memory is allocated. */
#include "tests/gp_test.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/worker/backend/backend_net.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static gp_status lenet(net *n, gp_error *err)
{
    gp_status status = gp_zoo_build(&n->spec, "lenet", NULL, 0, err);

    return status == GP_OK ? net_fill(n, 200, err) : status;
}

static gp_status dropout_net(net *n, gp_error *err)
{
    const gp_shape input = gp_shape3(1, 10, 11);
    gp_status status = gp_netspec_new(&n->spec, "dropout", &input, err);

    if (status == GP_OK)
        status = gp_netspec_add(n->spec, "conv", "conv2d", "channels=3;kernel=3", err);
    if (status == GP_OK)
        status = gp_netspec_add(n->spec, "drop", "dropout", NULL, err);
    if (status == GP_OK)
        status = gp_netspec_add(n->spec, "head", "fc", "outputs=6", err);
    if (status == GP_OK)
        status = gp_netspec_add(n->spec, "loss", "crossentropy", NULL, err);
    return status == GP_OK ? net_fill(n, 200, err) : status;
}

static double gap(const net *n, const result *a, const result *b)
{
    double *wide = gp_calloc(n->graph->blob_count, sizeof(double)), d;

    for (size_t i = 0; i < n->graph->blob_count; i++)
        wide[i] = b->gradients[i];
    d = distance(a->gradients, wide, n->graph->blob_count, 0);
    gp_free(wide);
    return d;
}

static void check_cuts(net *n)
{
    static const uint32_t counts[] = { 256, 255, 17, 3 }, cuts[] = { 1, 7, 16, 100 };
    result whole, cut;
    gp_error err;

    REQUIRE_OK(result_new(&whole, n), err);
    REQUIRE_OK(result_new(&cut, n), err);
    for (size_t i = 0; i < 4; i++) {
        way w = { .threads = 2, .dtype = GP_U8 };

        REQUIRE_OK(net_run(n, &w, GP_PHASE_TRAIN, counts[i], &whole, &err), err);
        for (size_t k = 0; k < 4; k++) {
            w.micro_batch = cuts[k];
            w.threads = 1 + k % 2;
            REQUIRE_OK(net_run(n, &w, GP_PHASE_TRAIN, counts[i], &cut, &err), err);
            if (!(gap(n, &cut, &whole) <= 1e-6))
                GP_TEST_FAIL("%u samples in calls of %u: gradient off by %g", counts[i], cuts[k],
                             gap(n, &cut, &whole));
            CHECK_NEAR(whole.sums[GP_SUM_LOSS], cut.sums[GP_SUM_LOSS], 1e-9 * whole.sums[GP_SUM_LOSS]);
            CHECK(whole.sums[GP_SUM_WEIGHT] == cut.sums[GP_SUM_WEIGHT]);
            CHECK(whole.sums[GP_SUM_CORRECT] == cut.sums[GP_SUM_CORRECT]);
        }
    }
    result_free(&whole);
    result_free(&cut);
}

TEST(calls_that_accumulate_equal_one_call)
{
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(lenet(&n, &err), err);
    check_cuts(&n);
    net_free(&n);
    REQUIRE_OK(dropout_net(&n, &err), err);
    check_cuts(&n);
    net_free(&n);
}

TEST(scores_do_not_depend_on_batch_split_or_threads)
{
    static const uint32_t cuts[] = { 1, 5, 13, 32, 200 };
    net n = { 0 };
    result whole, cut;
    gp_error err;
    way w = { .threads = 1, .dtype = GP_U8 };

    REQUIRE_OK(lenet(&n, &err), err);
    REQUIRE_OK(result_new(&whole, &n), err);
    REQUIRE_OK(result_new(&cut, &n), err);
    REQUIRE_OK(net_run(&n, &w, GP_PHASE_INFER, 200, &whole, &err), err);
    for (size_t i = 0; i < 5; i++) {
        w.micro_batch = cuts[i];
        w.threads = 1 + i % 2;
        REQUIRE_OK(net_run(&n, &w, GP_PHASE_INFER, 200, &cut, &err), err);
        CHECK(memcmp(whole.scores, cut.scores, 200 * n.graph->score_count * sizeof(float)) == 0);
    }
    result_free(&whole);
    result_free(&cut);
    net_free(&n);
}

TEST(repeated_steps_are_bitwise_identical)
{
    net n = { 0 };
    result a, b;
    gp_error err;

    REQUIRE_OK(lenet(&n, &err), err);
    REQUIRE_OK(result_new(&a, &n), err);
    REQUIRE_OK(result_new(&b, &n), err);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        way w = { .threads = threads, .dtype = GP_U8, .micro_batch = 50 };

        REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 123, &a, &err), err);
        for (int i = 0; i < 3; i++) {
            REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 123, &b, &err), err);
            CHECK(memcmp(a.gradients, b.gradients, n.graph->blob_count * sizeof(float)) == 0);
            CHECK(memcmp(a.sums, b.sums, sizeof(a.sums)) == 0);
        }
    }
    result_free(&a);
    result_free(&b);
    net_free(&n);
}

TEST(byte_and_float_samples_give_bitwise_identical_results)
{
    net n = { 0 };
    result bytes, floats;
    way w = { .threads = 1, .dtype = GP_U8 };
    gp_error err;

    REQUIRE_OK(lenet(&n, &err), err);
    REQUIRE_OK(result_new(&bytes, &n), err);
    REQUIRE_OK(result_new(&floats, &n), err);
    REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 21, &bytes, &err), err);
    w.dtype = GP_F32;
    REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 21, &floats, &err), err);
    CHECK(memcmp(bytes.gradients, floats.gradients, n.graph->blob_count * sizeof(float)) == 0);
    result_free(&bytes);
    result_free(&floats);
    net_free(&n);
}

TEST(a_step_without_samples_writes_zeros)
{
    static const char *const kernels[] = { NULL, "lanes,unfused", "lanes,split" };
    net n = { 0 };
    result r;
    gp_error err;

    REQUIRE_OK(lenet(&n, &err), err);
    REQUIRE_OK(result_new(&r, &n), err);
    for (size_t k = 0; k < 3; k++) {
        way w = { .kernels = kernels[k], .threads = 2, .dtype = GP_U8, .micro_batch = 8 };

        REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 0, &r, &err), err);
        for (size_t i = 0; i < n.graph->blob_count; i++)
            if (r.gradients[i] != 0) {
                GP_TEST_FAIL("gradient %zu is %g", i, (double)r.gradients[i]);
                break;
            }
        for (int i = 0; i < GP_SUMS; i++)
            CHECK(r.sums[i] == 0);
    }
    result_free(&r);
    net_free(&n);
}

TEST(samples_labelled_minus_one_reach_no_gradient_and_no_sum)
{
    net n = { 0 };
    result with, without;
    way w = { .threads = 1, .dtype = GP_U8 };
    gp_error err;

    REQUIRE_OK(lenet(&n, &err), err);
    REQUIRE_OK(result_new(&with, &n), err);
    REQUIRE_OK(result_new(&without, &n), err);
    for (int i = 0; i < 8; i++)
        n.labels[i] = i < 5 ? i : -1;
    REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 5, &without, &err), err);
    REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 8, &with, &err), err);
    CHECK(gap(&n, &with, &without) <= 1e-6);
    CHECK(with.sums[GP_SUM_WEIGHT] == 5);
    CHECK_NEAR(without.sums[GP_SUM_LOSS], with.sums[GP_SUM_LOSS], 1e-9);
    result_free(&with);
    result_free(&without);
    net_free(&n);
}

TEST(label_out_of_range_is_refused_with_its_value)
{
    static const int32_t labels[] = { 10, -2, INT32_MAX };
    const way w = { .threads = 1, .dtype = GP_U8, .kernels = "lanes" };
    net n = { 0 };
    result r;
    gp_error err = { 0 };
    char message[80];

    REQUIRE_OK(lenet(&n, &err), err);
    REQUIRE_OK(result_new(&r, &n), err);
    for (int i = 0; i < 3; i++) {
        n.labels[1] = labels[i];
        REQUIRE(net_run(&n, &w, GP_PHASE_TRAIN, 2, &r, &err) == GP_EINVAL);
        snprintf(message, sizeof(message), "sample 1 has label %d; the network has 10 classes", labels[i]);
        CHECK_CONTAINS(err.message, message);
    }
    result_free(&r);
    net_free(&n);
}

/* ---- one plan, many runs ---- */

typedef struct rig {
    net n;
    result r;
    gp_backend *backend;
    gp_plan *plan;
} rig;

static gp_status rig_open(rig *g, const char *kernels, uint32_t threads, gp_error *err)
{
    gp_backend_options options = { .threads = threads, .kernels = kernels };
    gp_plan_options plan = { .phase = GP_PHASE_TRAIN, .micro_batch = 40, .sample_dtype = GP_U8 };
    gp_plan_memory memory;
    gp_status status = lenet(&g->n, err);

    if (status == GP_OK)
        status = result_new(&g->r, &g->n);
    memory =
        (gp_plan_memory){ .parameters = g->n.parameters, .gradients = g->r.gradients, .sums = g->r.sums };
    if (status == GP_OK)
        status = gp_backend_cpu.open(&g->backend, &options, err);
    return status == GP_OK ? gp_backend_cpu.compile(&g->plan, g->backend, g->n.graph, &plan, &memory, err)
                           : status;
}

static void rig_close(rig *g)
{
    gp_backend_cpu.free(g->plan);
    gp_backend_cpu.close(g->backend);
    result_free(&g->r);
    net_free(&g->n);
}

static gp_batch rig_batch(const rig *g, bool first, bool last)
{
    return (
        gp_batch){ .samples = g->n.bytes, .targets = g->n.labels, .count = 40, .first = first, .last = last };
}

typedef struct announcements {
    size_t count[64], reported;
} announcements;

static gp_status announce(void *context, size_t count, gp_error *err)
{
    announcements *a = context;

    (void)err;
    if (a->reported < 64)
        a->count[a->reported++] = count;
    return GP_OK;
}

TEST(gradients_are_announced_in_growing_prefixes_on_the_last_call_only)
{
    static const char *const kernels[] = { NULL, "lanes,split" };

    for (size_t k = 0; k < 2; k++) {
        rig g = { 0 };
        announcements a = { .reported = 0 };
        gp_error err;
        gp_batch batch;

        REQUIRE_OK(rig_open(&g, kernels[k], 1, &err), err);
        batch = rig_batch(&g, true, false);
        REQUIRE_OK(gp_backend_cpu.run(g.plan, &batch, announce, &a, &err), err);
        CHECK_INT(0, a.reported);
        batch = rig_batch(&g, false, true);
        REQUIRE_OK(gp_backend_cpu.run(g.plan, &batch, announce, &a, &err), err);
        CHECK(k == 0 ? a.reported == 1 : a.reported > 3);
        for (size_t i = 1; i < a.reported; i++)
            CHECK(a.count[i] > a.count[i - 1]);
        CHECK(a.reported > 0 && a.count[a.reported - 1] == g.n.graph->blob_count);
        rig_close(&g);
    }
}

static gp_status refuse(void *context, size_t count, gp_error *err)
{
    (void)context;
    return gp_fail(err, GP_EPEER, "refused %zu", count);
}

TEST(announcement_error_ends_the_run)
{
    rig g = { 0 };
    gp_error err;
    gp_batch batch;

    REQUIRE_OK(rig_open(&g, NULL, 1, &err), err);
    batch = rig_batch(&g, true, true);
    CHECK_STATUS(GP_EPEER, gp_backend_cpu.run(g.plan, &batch, refuse, NULL, &err));
    CHECK_CONTAINS(err.message, "refused");
    rig_close(&g);
}

TEST(times_are_per_direction_and_reset_when_read)
{
    rig g = { 0 };
    gp_error err;
    gp_batch batch;
    gp_plan_times times;
    char text[256];

    REQUIRE_OK(rig_open(&g, NULL, 1, &err), err);
    batch = rig_batch(&g, true, true);
    REQUIRE_OK(gp_backend_cpu.run(g.plan, &batch, NULL, NULL, &err), err);
    times = gp_backend_cpu.take_times(g.plan);
    CHECK(times.forward_ns > 0 && times.backward_ns > 0);
    times = gp_backend_cpu.take_times(g.plan);
    CHECK(times.forward_ns == 0 && times.backward_ns == 0);
    gp_backend_cpu.describe(g.plan, text, sizeof(text));
    CHECK_CONTAINS(text, "lanes-");
    CHECK_CONTAINS(text, "conv1 .. conv1");
    gp_backend_cpu.describe(g.plan, text, 8);
    CHECK_INT(7, strlen(text));
    CHECK(gp_backend_cpu.memory_bytes(g.plan) > 100000);
    rig_close(&g);
}

static atomic_bool counting;
static atomic_ulong allocations;

#if !SANITIZED

/* Count all allocations in this process, including those by libraries. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static void note_allocation(void)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed))
        atomic_fetch_add(&allocations, 1);
}

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
    note_allocation();
    return __libc_malloc(bytes);
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t bytes)
{
    note_allocation();
    return __libc_calloc(count, bytes);
}

__attribute__((visibility("default"))) void *realloc(void *block, size_t bytes)
{
    note_allocation();
    return __libc_realloc(block, bytes);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t bytes)
{
    note_allocation();
    return __libc_memalign(alignment, bytes);
}

__attribute__((visibility("default"))) void *mmap(void *at, size_t bytes, int protection, int flags, int fd,
                                                  off_t offset)
{
    note_allocation();
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}
#endif

TEST(a_hundred_runs_allocate_nothing)
{
    static const char *const kernels[] = { NULL, "lanes,split" };
    rig g = { 0 };
    gp_error err;
    gp_batch batch;

    if (SANITIZED)
        SKIP("allocations cannot be counted under a sanitizer");
    for (size_t k = 0; k < 2; k++) {
        for (uint32_t threads = 1; threads <= 2; threads++) {
            g = (rig){ 0 };
            REQUIRE_OK(rig_open(&g, kernels[k], threads, &err), err);
            batch = rig_batch(&g, true, true);
            REQUIRE_OK(gp_backend_cpu.run(g.plan, &batch, NULL, NULL, &err), err);
            atomic_store(&allocations, 0);
            atomic_store(&counting, true);
            for (int i = 0; i < 100; i++)
                gp_backend_cpu.run(g.plan, &batch, NULL, NULL, &err);
            atomic_store(&counting, false);
            CHECK_INT(0, atomic_load(&allocations));
            rig_close(&g);
        }
    }
    atomic_store(&counting, true);
    free(malloc(16));
    atomic_store(&counting, false);
    CHECK(atomic_load(&allocations) > 0);
}

TEST(every_failing_allocation_is_reported_and_leaks_nothing)
{
    static const char *const kernels[] = { NULL, "lanes,split" };

    for (size_t k = 0; k < 2; k++) {
        rig g = { 0 };
        gp_error err;
        gp_plan *plan = NULL;
        gp_backend *backend = NULL;
        gp_backend_options backend_options = { .threads = 2, .cores = (const int[]){ 0, 0 } };
        gp_plan_options options = { .phase = GP_PHASE_TRAIN, .micro_batch = 9, .sample_dtype = GP_F32 };
        gp_plan_memory memory;

        REQUIRE_OK(rig_open(&g, kernels[k], 2, &err), err);
        memory =
            (gp_plan_memory){ .parameters = g.n.parameters, .gradients = g.r.gradients, .sums = g.r.sums };
        CHECK_EVERY_ALLOCATION(gp_backend_cpu.compile(&plan, g.backend, g.n.graph, &options, &memory, &err),
                               gp_backend_cpu.free(plan));
        CHECK_EVERY_ALLOCATION(gp_backend_cpu.open(&backend, &backend_options, &err),
                               gp_backend_cpu.close(backend));
        rig_close(&g);
    }
}

TEST(unusable_options_are_refused_with_a_fix)
{
    gp_backend_options options = { .threads = 0 };
    gp_plan_options plan_options = { .phase = GP_PHASE_TRAIN, .micro_batch = 0, .sample_dtype = GP_U8 };
    gp_plan_memory memory = { 0 };
    gp_backend *backend = NULL;
    gp_plan *plan = NULL;
    net n = { 0 };
    gp_error err;

    CHECK_STATUS(GP_EINVAL, gp_backend_cpu.open(&backend, &options, &err));
    CHECK_CONTAINS(err.message, "compute threads 0");
    options.threads = 1;
    options.kernels = "fortran";
    CHECK_STATUS(GP_EINVAL, gp_backend_cpu.open(&backend, &options, &err));
    CHECK_CONTAINS(err.message, "must be lanes, onednn, baseline, avx2 or avx512");
    options.kernels = NULL;
    REQUIRE_OK(gp_backend_cpu.open(&backend, &options, &err), err);
    REQUIRE_OK(lenet(&n, &err), err);
    CHECK_STATUS(GP_EINVAL, gp_backend_cpu.compile(&plan, backend, n.graph, &plan_options, &memory, &err));
    plan_options.micro_batch = 4;
    plan_options.sample_dtype = GP_F64;
    CHECK_STATUS(GP_EINVAL, gp_backend_cpu.compile(&plan, backend, n.graph, &plan_options, &memory, &err));
    CHECK_CONTAINS(err.message, "uint8 or float32");
    gp_backend_cpu.close(backend);
    net_free(&n);
}

TEST(missing_instruction_sets_are_named)
{
    gp_backend_options options = { .threads = 1, .kernels = "avx512" };
    gp_backend *backend = NULL;
    gp_error err;

    if (gp_backend_cpu.open(&backend, &options, &err) == GP_OK) {
        gp_backend_cpu.close(backend);
        SKIP("this CPU has AVX-512: nothing to refuse");
    }
    CHECK_INT(GP_ENODEV, err.code);
    CHECK_CONTAINS(err.message, "avx512");
}
