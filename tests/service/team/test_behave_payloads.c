/* test_behave_payloads.c: large and shared payloads in any number and order, and typed arrays. */
#include <sys/resource.h>

#include "tests/service/team/behave.h"
static gp_future *echo_shared(gp_broadcast *shared)
{
    return call_with((gp_parfeval_request){ .shared = shared }, "echo", NULL, 0);
}

static bool gives(gp_future *future, const char *text)
{
    const void *data = NULL;
    size_t bytes = 0;
    bool same = gp_future_result(future, &data, &bytes, &err) == GP_OK && bytes == strlen(text) + 1 &&
                memcmp(data, text, bytes) == 0;

    gp_future_free(future);
    return same;
}

TEST(broadcasts_work_in_any_order_and_after_a_worker_failure)
{
    gp_broadcast *first = NULL, *second = NULL;
    void *data;

    BEGIN(2);
    REQUIRE_OK(gp_broadcast_new(&first, "first", 6, &err), err);
    REQUIRE_OK(gp_broadcast_map(&second, &data, 7, &err), err);
    memcpy(data, "second", 7);
    for (int i = 0; i < 4; i++) {
        CHECK(gives(echo_shared(second), "second"));
        CHECK(gives(echo_shared(first), "first"));
    }
    CHECK_INT(0, team_info().worker_deaths);
    for (uint32_t worker = 1; worker <= 2; worker++)
        gp_future_free(call_with((gp_parfeval_request){ .worker = worker, .attempts = 1 }, "die", "kill", 4));
    CHECK(gives(echo_shared(first), "first"));
    gp_broadcast_free(first); /* at any time after the calls that use it were submitted */
    CHECK(gives(echo_shared(second), "second"));
    gp_broadcast_free(second);
    CHECK_INT(2, team_info().worker_deaths);
}

/* Return whether this process may open `count` descriptors: each payload is one. */
static bool may_open(rlim_t count)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_max < count)
        return false;
    files.rlim_cur = files.rlim_cur < count ? count : files.rlim_cur;
    return setrlimit(RLIMIT_NOFILE, &files) == 0;
}

TEST(broadcasts_beyond_the_worker_cache_are_resent_on_demand)
{
    enum { SHARED = 1300 };
    static gp_broadcast *shared[SHARED];

    if (!may_open(SHARED + 200))
        SKIP("the descriptor limit is too low");
    BEGIN(2);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < SHARED; i++) {
            char text[16];

            snprintf(text, sizeof(text), "%d", i);
            if (shared[i] == NULL)
                REQUIRE_OK(gp_broadcast_new(&shared[i], text, strlen(text) + 1, &err), err);
            if (!gives(echo_shared(shared[i]), text))
                REQUIRE(!"another text came back");
        }
    for (int i = 0; i < SHARED; i++)
        gp_broadcast_free(shared[i]);
    CHECK_INT(0, team_info().worker_deaths);
}

/* Leave this process `count` free descriptors. Return the previous limit. */
static struct rlimit descriptors_leave(rlim_t count)
{
    struct rlimit before, low;
    int first = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the lowest free number */

    getrlimit(RLIMIT_NOFILE, &before);
    low = (struct rlimit){ .rlim_cur = (rlim_t)first + count, .rlim_max = before.rlim_max };
    close(first);
    CHECK_INT(0, setrlimit(RLIMIT_NOFILE, &low));
    return before;
}

TEST(large_results_arrive_with_one_free_descriptor)
{
    enum { CALLS = 1000, BYTES = 40000 };
    static gp_future *futures[CALLS];
    const void *data;
    size_t bytes = 0;

    BEGIN(2);
    find("make_bytes");
    struct rlimit before = descriptors_leave(1);

    for (int i = 0; i < CALLS; i++)
        futures[i] = call("make_bytes", BYTES + i);
    for (int i = 0; i < CALLS; i++) {
        CHECK_STATUS(GP_OK, gp_future_result(futures[i], &data, &bytes, &err));
        CHECK_INT(BYTES + i, bytes);
        gp_future_free(futures[i]);
    }
    descriptors_leave(0);
    CHECK_STATUS(GP_EIO, end_of(call("make_bytes", BYTES)));
    CHECK_CONTAINS(err.message, "no free file descriptor");
    setrlimit(RLIMIT_NOFILE, &before);
    CHECK_STATUS(GP_OK, end_of(call("make_bytes", BYTES)));
    CHECK_INT(0, team_info().worker_deaths);
}

TEST(large_values_beyond_the_payload_limit_are_kept)
{
    enum { VALUES = 1100, BYTES = 40000 };
    static unsigned char value[BYTES];
    void *data;
    size_t bytes;

    if (!may_open(VALUES + 200))
        SKIP("the descriptor limit is too low");
    BEGIN(2);
    for (int i = 0; i < VALUES; i++) {
        char name[16];

        snprintf(name, sizeof(name), "v%d", i);
        memset(value, i % 251, BYTES);
        REQUIRE_OK(gp_team_put(team, GP_EVERY_WORKER, name, value, BYTES, &err), err);
    }
    for (int i = 0; i < VALUES; i += 99) {
        char name[16];

        snprintf(name, sizeof(name), "v%d", i);
        REQUIRE_OK(gp_team_get(team, 2, name, &data, &bytes, &err), err);
        CHECK(bytes == BYTES && ((unsigned char *)data)[BYTES - 1] == i % 251);
        gp_buffer_free(data);
    }
    CHECK_INT(0, team_info().worker_deaths);
}

TEST(many_large_arguments_can_be_queued)
{
    enum { CALLS = 3000, BYTES = 40000 };
    static gp_future *futures[CALLS];
    static unsigned char argument[BYTES];
    const unsigned char *data;
    size_t bytes;

    if (!may_open(CALLS + 200))
        SKIP("the descriptor limit is too low");
    BEGIN(2);
    find("echo");
    for (int i = 0; i < CALLS; i++) {
        memset(argument, i % 251, BYTES);
        futures[i] = call_with((gp_parfeval_request){ 0 }, "echo", argument, BYTES);
    }
    for (int i = 0; i < CALLS; i++) {
        REQUIRE_OK(gp_future_result(futures[i], (const void **)&data, &bytes, &err), err);
        CHECK(bytes == BYTES && data[BYTES - 1] == i % 251);
        gp_future_free(futures[i]);
    }
}

TEST(full_queue_of_large_items_blocks_the_sender_before_descriptors_run_out)
{
    enum { ITEMS = 3000 };
    gp_queue *queue = NULL;
    unsigned char *item;
    uint32_t worker;
    size_t bytes;
    int before;

    BEGIN(1);
    find("queue_large");
    before = descriptors_of(getpid());
    REQUIRE_OK(gp_queue_open(&queue, team, "large", &(gp_queue_options){ .depth = 4 }, &err), err);
    gp_future *sender = call("queue_large", ITEMS);

    CHECK_STATUS(GP_ETIMEDOUT, gp_future_wait(sender, 300, &err));
    CHECK(descriptors_of(getpid()) < before + 300);
    for (int i = 1; i <= ITEMS; i++) {
        REQUIRE_OK(gp_queue_next(queue, &worker, (void **)&item, &bytes, POOLS_TIMEOUT_MS, &err), err);
        if (bytes != BEHAVE_LARGE || item[0] != i % 251 || item[bytes - 1] != i % 251)
            REQUIRE(!"another item was expected");
        gp_buffer_free(item);
    }
    CHECK_STATUS(GP_OK, end_of(sender));
    CHECK_INT(0, team_info().worker_deaths);
    gp_queue_close(queue);
}

/* ---- tensors ---- */

TEST(tensors_keep_their_type_and_shape_on_workers)
{
    static const int64_t rows[] = { 101, 2, 0, 3 };
    double values[101][3];
    gp_tensor sent = { .dtype = GP_F64, .shape = { 2, { 101, 3 } }, .data = values }, back = { 0 };

    BEGIN(3);
    for (int i = 0; i < 303; i++)
        values[i / 3][i % 3] = i;
    for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
        sent.shape.dim[0] = rows[n];
        REQUIRE_OK(gp_team_scatter_tensor(team, "part", &sent, &err), err);
        REQUIRE_OK(gp_team_gather_tensor(&back, team, "part", GP_F64, &err), err);
        CHECK_INT(GP_F64, back.dtype);
        CHECK(back.shape.rank == 2 && back.shape.dim[0] == rows[n] && back.shape.dim[1] == 3);
        CHECK(memcmp(values, back.data, (size_t)rows[n] * sizeof(values[0])) == 0);
        gp_tensor_deinit(&back);
    }
    sent.shape.dim[0] = 101;
    REQUIRE_OK(gp_team_scatter_tensor(team, "part", &sent, &err), err);
    for (uint32_t worker = 1; worker <= 3; worker++) {
        gp_future *future = call_with((gp_parfeval_request){ .worker = worker }, "raise_tensor", "part", 4);

        CHECK_INT(worker < 3 ? 34 : 33, number_of(future));
    }
    REQUIRE_OK(gp_team_gather_tensor(&back, team, "part", 0, &err), err);
    REQUIRE(back.shape.dim[0] == 101);
    for (int i = 0; i < 303; i++)
        CHECK(((const double *)back.data)[i] == i + 1);
    gp_tensor_deinit(&back);
}

TEST(tensor_of_another_type_or_shape_is_refused)
{
    static float floats[100000];
    gp_tensor sent = { .dtype = GP_F32, .shape = { 3, { 10, 100, 100 } }, .data = floats }, back = { 0 };

    BEGIN(2);
    floats[99999] = 7;
    REQUIRE_OK(gp_team_put_tensor(team, GP_EVERY_WORKER, "big", &sent, &err), err);
    REQUIRE_OK(gp_team_get_tensor(&back, team, 2, "big", GP_F32, &err), err);
    CHECK(back.shape.rank == 3 && back.shape.dim[2] == 100 && ((const float *)back.data)[99999] == 7);
    gp_tensor_deinit(&back);
    CHECK_STATUS(GP_EINVAL, gp_team_get_tensor(&back, team, 2, "big", GP_I64, &err));
    CHECK_CONTAINS(err.message, "worker 2: the value 'big' has elements of type float32, not int64");
    CHECK_STATUS(GP_EINVAL, end_of(call_text("raise_tensor", "big")));
    CHECK_CONTAINS(err.message, "has elements of type float32, not float64");

    /* parts that differ */
    sent.shape = (gp_shape){ 2, { 5, 4 } };
    REQUIRE_OK(gp_team_put_tensor(team, 1, "big", &sent, &err), err);
    CHECK_STATUS(GP_EINVAL, gp_team_gather_tensor(&back, team, "big", 0, &err));
    CHECK_CONTAINS(err.message,
                   "worker 2: the part of 'big' is float32 10x100x100, but that of worker 1 is float32 5x4");
    REQUIRE_OK(gp_team_put(team, 1, "big", "bytes", 5, &err), err);
    CHECK_STATUS(GP_EINVAL, gp_team_get_tensor(&back, team, 1, "big", 0, &err));
    CHECK_CONTAINS(err.message, "is not a tensor");
    CHECK_STATUS(GP_ENOENT, gp_team_get_tensor(&back, team, 1, "none", 0, &err));
    sent.shape.rank = 0;
    CHECK_STATUS(GP_EINVAL, gp_team_scatter_tensor(team, "big", &sent, &err));
    sent.dtype = GP_BF16;
    CHECK_STATUS(GP_EINVAL, gp_team_put_tensor(team, 1, "big", &sent, &err));
    CHECK_CONTAINS(err.message, "float32 or float64");
    sent = (gp_tensor){ .dtype = GP_F32, .shape = { 2, { -1, 4 } }, .data = floats };
    CHECK_STATUS(GP_ELIMIT, gp_team_put_tensor(team, 1, "big", &sent, &err));
}

TEST(tensors_are_saved_and_loaded_as_npy_files)
{
    static const gp_dtype types[] = { GP_U8, GP_I32, GP_I64, GP_F32, GP_F64 };
    int64_t values[24];
    gp_tensor saved = { .data = values }, loaded = { 0 };

    BEGIN(1);
    for (int i = 0; i < 24; i++)
        values[i] = i * 1000003;
    for (uint32_t rank = 0; rank <= GP_RANK_MAX; rank++)
        for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
            saved.dtype = types[t];
            saved.shape = (gp_shape){ rank, { 2, 3, 1, 2, 2, 1 } };
            REQUIRE_OK(gp_tensor_save(&saved, in_root("array.npy"), &err), err);
            REQUIRE_OK(gp_tensor_load(&loaded, in_root("array.npy"), &err), err);
            CHECK(loaded.dtype == types[t] && loaded.shape.rank == rank);
            CHECK(memcmp(loaded.shape.dim, saved.shape.dim, rank * sizeof(int64_t)) == 0);
            CHECK(memcmp(loaded.data, values, types[t] == GP_U8 ? 1 : 4) == 0);
            gp_tensor_deinit(&loaded);
        }
    CHECK_STATUS(GP_ENOENT, gp_tensor_load(&loaded, in_root("none.npy"), &err));
    CHECK_STATUS(GP_EIO, gp_tensor_save(&saved, in_root("none/array.npy"), &err));

    /* the bytes of a value are such a file */
    void *data = NULL;
    size_t bytes;

    REQUIRE_OK(gp_team_put_tensor(team, 1, "array", &saved, &err), err);
    REQUIRE_OK(gp_team_get(team, 1, "array", &data, &bytes, &err), err);
    CHECK(bytes > 6 && memcmp(data, "\x93NUMPY", 6) == 0);
    gp_buffer_free(data);
}
