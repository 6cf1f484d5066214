#include "tests/gp_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "common/data/loader/loader.h"
#include "common/data/store/store_ops.h"

enum { COUNT = 1000 };

/* A test store: sample i holds i and has the label i mod 7. Reads wait while the gate is closed,
 * and can be made to fail. */
typedef struct gate_store {
    gp_store store;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;              /* false: reads wait */
    uint32_t fail_at;       /* reading this sample fails */
    uint32_t standing;      /* reads waiting at the closed gate */
    _Atomic uint32_t reads; /* reads started */
} gate_store;

static gp_status gate_read(const gp_store *store, const uint32_t *index, uint32_t count, void *samples,
                           void *targets, gp_error *err)
{
    gate_store *gate = (gate_store *)(uintptr_t)store;

    atomic_fetch_add(&gate->reads, 1);
    pthread_mutex_lock(&gate->lock);
    gate->standing++;
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    gate->standing--;
    pthread_mutex_unlock(&gate->lock);
    for (uint32_t i = 0; i < count; i++) {
        if (index[i] == gate->fail_at)
            return gp_fail(err, GP_EIO, "sample %u cannot be read", index[i]);
        ((float *)samples)[i] = (float)index[i];
        if (targets != NULL)
            ((int32_t *)targets)[i] = (int32_t)(index[i] % 7);
    }
    return GP_OK;
}

static void gate_close(gp_store *store)
{
    gp_store_deinit(store);
}

static const gp_store_ops gate_ops = { .read = gate_read, .close = gate_close };

static void gate_init(gate_store *gate)
{
    gp_store_info info = { .source = "gate",
                           .kind = "test",
                           .count = COUNT,
                           .channels = 1,
                           .height = 1,
                           .width = 1,
                           .dtype = GP_F32,
                           .class_count = 7 };

    memset(gate, 0, sizeof(*gate));
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
    gate->open = true;
    gate->fail_at = UINT32_MAX;
    if (gp_store_init(&gate->store, &gate_ops, &info, NULL) != GP_OK)
        abort();
}

static void gate_set(gate_store *gate, bool open)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = open;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

/* Wait until `reads` reads have started. */
static void gate_await_read(gate_store *gate, uint32_t reads)
{
    while (atomic_load(&gate->reads) < reads)
        sched_yield();
}

/* Wait until at least `count` reads wait at the closed gate. */
static void gate_await_standing(gate_store *gate, uint32_t count)
{
    for (uint32_t standing = 0; standing < count; sched_yield()) {
        pthread_mutex_lock(&gate->lock);
        standing = gate->standing;
        pthread_mutex_unlock(&gate->lock);
    }
}

/* ---- fixture: a loader of the running test ---- */

static gate_store gate;
static gp_sampler sampler;
static gp_loader *loader;

/* Create a loader that reads from the open gate. */
static bool loader_open(gp_shuffle shuffle, gp_loader_options options)
{
    gp_error err;

    gate_init(&gate);
    gp_sampler_init(&sampler, COUNT, shuffle, 11);
    if (gp_loader_new(&loader, &gate.store, &sampler, &options, &err) == GP_OK)
        return true;
    GP_TEST_FAIL("%s", err.message);
    return false;
}

/* Free the loader, in any state: batches may be taken and requests queued. The gate is opened,
 * because the loader waits for a read in progress. */
static void loader_close(void)
{
    if (loader == NULL)
        return;
    gate_set(&gate, true);
    gp_loader_free(loader);
    loader = NULL;
    gp_store_close(&gate.store);
}

TEARDOWN()
{
    loader_close();
}

static void check_batch(const gp_loader_batch *batch, uint32_t epoch, uint32_t first, uint32_t count)
{
    uint32_t index[COUNT];

    CHECK_INT(epoch, batch->epoch);
    CHECK_INT(first, batch->first);
    CHECK_INT(count, batch->count);
    CHECK_INT(0, (uintptr_t)batch->samples % 64);
    gp_sampler_get(&sampler, epoch, first, count, index);
    for (uint32_t i = 0; i < count; i++)
        if (((float *)batch->samples)[i] != (float)index[i] ||
            ((int32_t *)batch->targets)[i] != (int32_t)(index[i] % 7))
            GP_TEST_FAIL("sample %u of the batch at %u is wrong", i, first);
}

/* Take the next batch, check it and release it. false: no batch; reported as a failure. */
static bool check_next(uint32_t epoch, uint32_t first, uint32_t count)
{
    gp_loader_batch *batch;
    gp_error err;

    if (gp_loader_take(loader, &batch, NULL, &err) != GP_OK) {
        GP_TEST_FAIL("no batch at %u: %s", first, err.message);
        return false;
    }
    check_batch(batch, epoch, first, count);
    gp_loader_release(loader, batch);
    return true;
}

TEST(batches_arrive_in_request_order)
{
    gp_loader_batch *batch;
    gp_error err;
    int64_t waited;

    REQUIRE(loader_open(GP_SHUFFLE_EVERY_EPOCH, (gp_loader_options){ .depth = 3, .capacity = 150 }));
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        for (uint32_t first = 0; first < COUNT; first += 150)
            REQUIRE_OK(
                gp_loader_request(loader, epoch, first, first + 150 <= COUNT ? 150 : COUNT - first, &err),
                err);
        for (uint32_t first = 0; first < COUNT; first += 150) {
            REQUIRE_OK(gp_loader_take(loader, &batch, &waited, &err), err);
            CHECK(waited >= 0);
            check_batch(batch, epoch, first, first + 150 <= COUNT ? 150 : COUNT - first);
            gp_loader_release(loader, batch);
        }
    }
}

/* Read the same samples with different numbers of threads and batch sizes. */
TEST(batches_do_not_depend_on_the_thread_count)
{
    gp_augment none;
    gp_error err;

    REQUIRE_OK(gp_augment_parse(&none, "", &err), err);
    for (uint32_t threads = 1; threads <= 8; threads *= 2)
        for (uint32_t capacity = 1; capacity <= 333; capacity += 83) {
            uint32_t requested = 0;

            REQUIRE(loader_open(
                GP_SHUFFLE_EVERY_EPOCH,
                (gp_loader_options){
                    .depth = 3, .capacity = capacity, .augment = &none, .seed = 1, .threads = threads }));
            for (uint32_t first = 0; first < 700; first += capacity) {
                for (; requested < 700 && requested <= first + 5 * capacity; requested += capacity)
                    REQUIRE_OK(gp_loader_request(loader, 2, requested,
                                                 700 - requested < capacity ? 700 - requested : capacity,
                                                 &err),
                               err);
                REQUIRE(check_next(2, first, 700 - first < capacity ? 700 - first : capacity));
            }
            loader_close();
        }
}

TEST(errors_and_cancels_keep_their_order_with_threads)
{
    gp_augment none;
    gp_loader_batch *batch;
    gp_error err;

    REQUIRE_OK(gp_augment_parse(&none, "", &err), err);
    REQUIRE(loader_open(
        GP_SHUFFLE_NEVER,
        (gp_loader_options){ .depth = 2, .capacity = 100, .augment = &none, .seed = 1, .threads = 4 }));
    gate.fail_at = 150;
    for (int turn = 0; turn < 200; turn++) {
        for (uint32_t first = 0; first < 300; first += 100)
            REQUIRE_OK(gp_loader_request(loader, 0, first, 100, &err), err);
        REQUIRE(check_next(0, 0, 100));
        REQUIRE(gp_loader_take(loader, &batch, NULL, &err) == GP_EIO);
        CHECK_CONTAINS(err.message, "sample 150");
        REQUIRE(check_next(0, 200, 100));

        /* Cancel while threads are reading. Their pieces are dropped, and the slots become free. A
         * thread may still hold a piece dropped in the previous turn; it counts as waiting, too. */
        gate_set(&gate, false);
        for (uint32_t first = 300; first < 600; first += 100)
            REQUIRE_OK(gp_loader_request(loader, 0, first, 100, &err), err);
        gate_await_standing(&gate, 1 + (uint32_t)turn % 4);
        gp_loader_cancel(loader);
        gate_set(&gate, true);
    }
    REQUIRE_OK(gp_loader_request(loader, 0, 900, 100, &err), err);
    REQUIRE(check_next(0, 900, 100));
}

TEST(an_empty_request_gives_an_empty_batch)
{
    gp_loader_batch *batch;
    gp_error err;

    REQUIRE(loader_open(GP_SHUFFLE_NEVER, (gp_loader_options){ .depth = 1, .capacity = 4 }));
    REQUIRE_OK(gp_loader_request(loader, 0, COUNT, 0, &err), err);
    REQUIRE_OK(gp_loader_take(loader, &batch, NULL, &err), err);
    check_batch(batch, 0, COUNT, 0); /* the loader is freed while the batch is taken */
}

TEST(prefetching_stops_when_the_ring_is_full)
{
    gp_loader_batch *first, *second;
    gp_error err;

    REQUIRE(loader_open(GP_SHUFFLE_ONCE, (gp_loader_options){ .depth = 2, .capacity = 10 }));
    for (uint32_t i = 0; i < 5; i++)
        REQUIRE_OK(gp_loader_request(loader, 0, 10 * i, 10, &err), err);
    gate_await_read(&gate, 2); /* before any take */
    REQUIRE_OK(gp_loader_take(loader, &first, NULL, &err), err);
    REQUIRE_OK(gp_loader_take(loader, &second, NULL, &err), err);
    CHECK_INT(2, atomic_load(&gate.reads)); /* no slot is free for a third batch */
    gp_loader_batch *none = NULL;
    CHECK_STATUS(GP_ESTATE, gp_loader_take(loader, &none, NULL, &err));
    CHECK_CONTAINS(err.message, "all 2 batches of the loader are in use");
    CHECK(none == NULL);
    gp_loader_release(loader, second); /* release in a different order */
    gp_loader_release(loader, first);
    for (uint32_t i = 2; i < 5; i++)
        REQUIRE(check_next(0, 10 * i, 10));
    CHECK_STATUS(GP_ESTATE, gp_loader_take(loader, &first, NULL, &err));
    CHECK_CONTAINS(err.message, "no batch is requested");
}

TEST(invalid_requests_and_options_are_rejected)
{
    gp_loader *other;
    gp_error err;

    REQUIRE(loader_open(GP_SHUFFLE_ONCE, (gp_loader_options){ .depth = 1, .capacity = 10 }));
    CHECK_STATUS(GP_EINVAL, gp_loader_new(&other, &gate.store, &sampler,
                                          &(gp_loader_options){ .depth = 0, .capacity = 10 }, &err));
    CHECK_STATUS(GP_EINVAL, gp_loader_new(&other, &gate.store, &sampler,
                                          &(gp_loader_options){ .depth = 65, .capacity = 10 }, &err));
    CHECK_STATUS(GP_EINVAL, gp_loader_new(&other, &gate.store, &sampler,
                                          &(gp_loader_options){ .depth = 1, .capacity = 0 }, &err));
    CHECK_STATUS(GP_EINVAL, gp_loader_request(loader, 0, 0, 11, &err));
    CHECK_STATUS(GP_EINVAL, gp_loader_request(loader, 0, COUNT - 5, 6, &err));
    CHECK_STATUS(GP_EINVAL, gp_loader_request(loader, 0, 0xffffffff, 2, &err));
    gate_set(&gate, false);
    for (uint32_t i = 0; i < GP_LOADER_REQUESTS_MAX; i++)
        CHECK_STATUS(GP_OK, gp_loader_request(loader, 0, 0, 1, &err));
    gate_await_read(&gate, 1); /* the thread took a request from the queue */
    CHECK_STATUS(GP_OK, gp_loader_request(loader, 0, 0, 1, &err));
    CHECK_STATUS(GP_EBUSY, gp_loader_request(loader, 0, 0, 1, &err));
    gate_set(&gate, true); /* the loader is freed while requests are queued */
}

TEST(an_error_is_returned_in_place_of_the_batch)
{
    gp_loader_batch *batch;
    gp_error err;

    REQUIRE(loader_open(GP_SHUFFLE_NEVER, (gp_loader_options){ .depth = 1, .capacity = 10 }));
    gate.fail_at = 15;
    for (uint32_t i = 0; i < 3; i++)
        REQUIRE_OK(gp_loader_request(loader, 0, 10 * i, 10, &err), err);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_STATUS(i == 1 ? GP_EIO : GP_OK, gp_loader_take(loader, &batch, NULL, &err));
        if (i == 1) {
            CHECK_TEXT("sample 15 cannot be read", err.message);
        } else {
            check_batch(batch, 0, 10 * i, 10);
            gp_loader_release(loader, batch);
        }
    }
}

TEST(a_cancel_drops_all_pending_requests)
{
    gp_loader_batch *held, *batch;
    gp_error err;

    REQUIRE(loader_open(GP_SHUFFLE_EVERY_EPOCH, (gp_loader_options){ .depth = 3, .capacity = 10 }));
    for (uint32_t i = 0; i < 6; i++)
        REQUIRE_OK(gp_loader_request(loader, 0, 10 * i, 10, &err), err);
    REQUIRE_OK(gp_loader_take(loader, &held, NULL, &err), err);
    gate_set(&gate, false); /* the next read remains in flight */
    gp_loader_cancel(loader);
    REQUIRE_OK(gp_loader_request(loader, 7, 500, 10, &err), err);
    gate_set(&gate, true);
    REQUIRE_OK(gp_loader_take(loader, &batch, NULL, &err), err);
    check_batch(batch, 7, 500, 10);
    check_batch(held, 0, 0, 10); /* a taken batch is not affected */
    gp_loader_release(loader, held);
    gp_loader_release(loader, batch);
    CHECK_STATUS(GP_ESTATE, gp_loader_take(loader, &batch, NULL, &err));
}

/* Thread that takes a batch, for a test that cancels meanwhile. argument: receives the status */
static void *taker_main(void *argument)
{
    gp_status *status = argument;
    gp_loader_batch *batch;

    *status = gp_loader_take(loader, &batch, NULL, NULL);
    return NULL;
}

TEST(a_cancel_unblocks_a_waiting_take)
{
    gp_error err;
    gp_status status;
    pthread_t thread;

    REQUIRE(loader_open(GP_SHUFFLE_NEVER, (gp_loader_options){ .depth = 1, .capacity = 10 }));
    gate_set(&gate, false);
    REQUIRE_OK(gp_loader_request(loader, 0, 0, 10, &err), err);
    gate_await_read(&gate, 1);
    REQUIRE(pthread_create(&thread, NULL, taker_main, &status) == 0);

    /* The take must return whether it already waits or starts too late: with a cancel, or because
     * nothing is requested. */
    sched_yield();
    gp_loader_cancel(loader);
    pthread_join(thread, NULL);
    CHECK(status == GP_ECANCELED || status == GP_ESTATE);
    gate_set(&gate, true);
}

TEST(random_requests_and_cancels_keep_batches_intact)
{
    uint32_t epoch = 0, word = 1;
    gp_error err;

    REQUIRE(loader_open(GP_SHUFFLE_EVERY_EPOCH, (gp_loader_options){ .depth = 4, .capacity = 200 }));
    for (int round = 0; round < 300; round++, epoch++) {
        uint32_t requested, taken;

        word = word * 1664525 + 1013904223;
        requested = 1 + (word >> 24) % 6;
        taken = (word >> 16) % (requested + 1);
        for (uint32_t i = 0; i < requested; i++)
            REQUIRE_OK(gp_loader_request(loader, epoch, 100 * i, 100 + i, &err), err);
        for (uint32_t i = 0; i < taken; i++)
            REQUIRE(check_next(epoch, 100 * i, 100 + i));
        gp_loader_cancel(loader);
    }
}

TEST(the_ring_depth_adapts_within_limits)
{
    gp_loader_options options = { .depth = 1, .depth_max = 3, .bytes_max = 1 << 20, .capacity = 10 };
    gp_loader_batch *first, *second;
    gp_error err;
    uint32_t at = 20;

    REQUIRE(loader_open(GP_SHUFFLE_NEVER, options));
    CHECK_INT(1, gp_loader_depth(loader));
    CHECK_INT(3, gp_loader_depth_max(loader));
    REQUIRE_OK(gp_loader_request(loader, 0, 0, 10, &err), err);
    REQUIRE_OK(gp_loader_request(loader, 0, 10, 10, &err), err);
    REQUIRE_OK(gp_loader_take(loader, &first, NULL, &err), err);
    /* The thread finds no slot for the second request, and this take waits for it. */
    while (gp_loader_take(loader, &second, NULL, &err) == GP_ESTATE)
        sched_yield();
    check_batch(first, 0, 0, 10);
    check_batch(second, 0, 10, 10);
    CHECK_INT(2, gp_loader_depth(loader));
    gp_loader_release(loader, first);
    gp_loader_release(loader, second);
    for (int turn = 0; turn < 50000 && gp_loader_depth(loader) > 1; turn++, at = (at + 10) % COUNT) {
        REQUIRE_OK(gp_loader_request(loader, 0, at, 10, &err), err);
        usleep(100);
        REQUIRE(check_next(0, at, 10));
    }
    CHECK_INT(1, gp_loader_depth(loader));
    loader_close();
    options.bytes_max = 2 * (10 * 8 + 64); /* room for two slots, not three */
    REQUIRE(loader_open(GP_SHUFFLE_NEVER, options));
    CHECK_INT(2, gp_loader_depth_max(loader));
}

TEST(loading_batches_allocates_no_memory)
{
    gp_loader_batch *batch;
    gp_error err;
    uint64_t calls;

    REQUIRE(loader_open(GP_SHUFFLE_EVERY_EPOCH, (gp_loader_options){ .depth = 2, .capacity = 100 }));
    calls = gp_alloc_get_stats().calls;
    for (uint32_t i = 0; i < 50; i++) {
        REQUIRE_OK(gp_loader_request(loader, i, 0, 100, &err), err);
        REQUIRE_OK(gp_loader_take(loader, &batch, NULL, &err), err);
        gp_loader_release(loader, batch);
    }
    CHECK_INT(calls, gp_alloc_get_stats().calls);
}

TEST(the_loader_survives_failing_allocations_and_an_early_free)
{
    gp_loader *other;
    gp_error err;

    REQUIRE(loader_open(GP_SHUFFLE_EVERY_EPOCH, (gp_loader_options){ .depth = 3, .capacity = 500 }));
    CHECK_EVERY_ALLOCATION(gp_loader_new(&other, &gate.store, &sampler,
                                         &(gp_loader_options){ .depth = 3, .capacity = 100 }, &err),
                           gp_loader_free(other));
    for (int i = 0; i < 50; i++) {
        loader_close();
        REQUIRE(loader_open(GP_SHUFFLE_EVERY_EPOCH, (gp_loader_options){ .depth = 3, .capacity = 500 }));
        for (uint32_t j = 0; j < 8; j++)
            REQUIRE_OK(gp_loader_request(loader, j, 0, 500, &err), err);
    }
    gp_loader_free(NULL);
}
