/* Unit tests for common/base: errors, allocation, buffers, random numbers, parameters, JSON,
 * files. */
#include "tests/gp_test.h"

#include <limits.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/memory/buffer.h"
#include "common/base/system/proc_stat.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"
#include "common/base/text/params.h"
#include "common/base/system/memory_kills.h"
#include "common/base/system/process.h"
#include "common/base/system/timeout.h"
#include "common/base/printable.h"
#include "common/base/rng.h"
#include "common/base/system/seal.h"
#include "common/base/text/spell.h"
#include "common/base/memory/tensor.h"
#include "common/base/text/text.h"
#include "tests/leftovers.h"

TEST(a_failing_call_sets_code_and_message)
{
    gp_error err;

    CHECK_STATUS(GP_EINVAL, gp_fail(&err, GP_EINVAL, "batch size is %d", 0));
    CHECK_TEXT("batch size is 0", err.message);
    gp_error_prefix(&err, "worker %d", 2);
    CHECK_TEXT("worker 2: batch size is 0", err.message);
    gp_error_suffix(&err, "job %d may run", 7);
    CHECK_TEXT("worker 2: batch size is 0; job 7 may run", err.message);
    CHECK_STATUS(GP_EIO, gp_fail(NULL, GP_EIO, "nobody listens"));
}

TEST(a_long_message_is_cut_and_stays_on_one_line)
{
    gp_error err;
    char text[2000];

    memset(text, 'x', sizeof(text));
    text[10] = '\n';
    text[sizeof(text) - 1] = '\0';
    gp_fail(&err, GP_EIO, "%s", text);
    CHECK_INT(GP_ERROR_MESSAGE_MAX - 1, strlen(err.message));
    CHECK_CONTAINS(err.message, "xxx...");
    CHECK(strchr(err.message, '\n') == NULL);
    gp_error_suffix(&err, "the job %d may run", 7);
    CHECK_INT(GP_ERROR_MESSAGE_MAX - 1, strlen(err.message));
    CHECK_CONTAINS(err.message, "xxx...; the job 7 may run");
}

TEST(every_status_has_a_name_and_numbers_are_unique)
{
    int seen[64] = { 0 };

#define X(code, number, text)                                                                                \
    CHECK(gp_status_known(number));                                                                          \
    CHECK_TEXT(#code, gp_status_name(code));                                                                 \
    CHECK_INT(0, seen[number]++);
#include "common/base/status.def"
#undef X
    CHECK(!gp_status_known(63));
}

TEST(allocation_counts_and_fails_on_demand)
{
    gp_alloc_stats before = gp_alloc_get_stats();
    void *block;

    gp_alloc_fail_nth(2);
    block = gp_malloc(8);
    CHECK(block != NULL);
    CHECK(gp_malloc(8) == NULL);
    CHECK_INT(before.live + 1, gp_alloc_get_stats().live);
    CHECK(gp_calloc(SIZE_MAX / 2, 3) == NULL);
    CHECK(gp_realloc_array(NULL, SIZE_MAX / 2, 3) == NULL);
    gp_free(block);
    CHECK_INT(before.live, gp_alloc_get_stats().live);
}

TEST(gp_array_grow_makes_room_for_each_new_element)
{
    /* Capacities 16, 32, ... 1024. */
    enum { COUNT = 1024, GROWTHS = 7 };
    const uint64_t calls = gp_alloc_get_stats().calls;
    uint32_t *array = NULL;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < COUNT; i++) {
        array = gp_array_grow(array, i, sizeof(*array));
        REQUIRE(array != NULL);
        array[i] = i;
    }
    CHECK_INT(calls + GROWTHS, gp_alloc_get_stats().calls);
    gp_alloc_fail_nth(1);
    CHECK(gp_array_grow(array, COUNT, sizeof(*array)) == NULL);
    gp_alloc_fail_nth(0);
    for (uint32_t i = 0; i < COUNT; i++)
        sum += array[i];
    CHECK_INT(COUNT * (COUNT - 1) / 2, sum);
    gp_free(array);
}

TEST(words_are_quoted_for_a_shell_if_necessary)
{
    gp_buffer buffer;
    gp_error err;

    gp_buffer_init(&buffer, 30);
    REQUIRE_OK(gp_buffer_shell_word(&buffer, "a-1/b.c", &err), err);
    gp_buffer_clear(&buffer);
    REQUIRE_OK(gp_buffer_shell_word(&buffer, "", &err), err);
    CHECK_TEXT("''", gp_buffer_text(&buffer));
    gp_buffer_clear(&buffer);
    REQUIRE_OK(gp_buffer_shell_word(&buffer, "it's $HOME", &err), err);
    CHECK_TEXT("'it'\\''s $HOME'", gp_buffer_text(&buffer));
    CHECK_STATUS(GP_ELIMIT, gp_buffer_shell_word(&buffer, "0123456789 0123456789", &err));
    gp_buffer_deinit(&buffer);
}

TEST(a_buffer_rejects_appends_beyond_its_limit)
{
    gp_buffer buffer;
    gp_error err;

    gp_buffer_init(&buffer, 10);
    REQUIRE_OK(gp_buffer_append(&buffer, "12345678", 8, &err), err);
    CHECK_STATUS(GP_ELIMIT, gp_buffer_append(&buffer, "xyz", 3, &err));
    CHECK_TEXT("12345678", gp_buffer_text(&buffer));
    REQUIRE_OK(gp_buffer_printf(&buffer, &err, "%d", 90), err);
    CHECK_TEXT("1234567890", gp_buffer_text(&buffer));
    gp_buffer_deinit(&buffer);
}

/* Known-answer tests from the Random123 distribution (kat_vectors, philox4x32 with 10 rounds). */
TEST(philox_matches_the_published_vectors)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } golden[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { ~0u, ~0u, ~0u, ~0u }, { ~0u, ~0u }, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };

    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        uint32_t out[4];

        gp_philox4x32(out, golden[i].counter, golden[i].key);
        for (int k = 0; k < 4; k++)
            CHECK_INT(golden[i].out[k], out[k]);
    }
}

TEST(normal_draws_have_mean_zero_and_unit_variance)
{
    double sum = 0, squares = 0;
    enum { DRAWS = 100000 };

    for (uint32_t i = 0; i < DRAWS / 4; i++) {
        uint32_t words[4];
        double value[4];

        gp_rng_draw(words, 42, gp_rng_stream(GP_RNG_INIT, 3), 0, 0, i);
        gp_rng_normal(value, words[0], words[1]);
        gp_rng_normal(value + 2, words[2], words[3]);
        for (int k = 0; k < 4; k++) {
            sum += value[k];
            squares += value[k] * value[k];
        }
    }
    CHECK_NEAR(0.0, sum / DRAWS, 0.015);
    CHECK_NEAR(1.0, squares / DRAWS, 0.02);
}

/* Parameter struct with one field of each type. */
typedef struct sample {
    double rate;
    int64_t stride[2];
    bool ceil;
    int schedule;
    char name[8];
} sample;

static const char *const schedules[] = { "none", "piecewise", NULL };
static const gp_param sample_params[] = {
    { .name = "learn-rate",
      .alias = "lr",
      .type = GP_PARAM_F64,
      .offset = offsetof(sample, rate),
      .fallback = 0.01,
      .min = 0,
      .max = 10 },
    { .name = "stride",
      .type = GP_PARAM_I64,
      .offset = offsetof(sample, stride),
      .count = 2,
      .fallback = 1,
      .min = 1,
      .max = 64 },
    { .name = "ceil", .type = GP_PARAM_BOOL, .offset = offsetof(sample, ceil) },
    { .name = "schedule", .type = GP_PARAM_WORD, .offset = offsetof(sample, schedule), .words = schedules },
    { .name = "name",
      .type = GP_PARAM_TEXT,
      .offset = offsetof(sample, name),
      .count = 8,
      .fallback_text = "net" },
    { 0 },
};

TEST(parameters_are_parsed_and_range_checked)
{
    sample s;
    gp_error err;

    gp_params_default(sample_params, &s);
    CHECK_NEAR(0.01, s.rate, 0);
    CHECK_INT(1, s.stride[1]);
    CHECK_TEXT("net", s.name);
    REQUIRE_OK(gp_params_set(gp_params_find(sample_params, "lr"), &s, "0.5", &err), err);
    REQUIRE_OK(gp_params_set(gp_params_find(sample_params, "stride"), &s, "2,3", &err), err);
    CHECK_INT(3, s.stride[1]);
    REQUIRE_OK(gp_params_set(gp_params_find(sample_params, "stride"), &s, "4", &err), err);
    CHECK_INT(4, s.stride[1]);
    CHECK_STATUS(GP_EINVAL, gp_params_set(&sample_params[0], &s, "nan", &err));
    CHECK_CONTAINS(err.message, "learn-rate is nan");
    CHECK_STATUS(GP_EINVAL, gp_params_set(&sample_params[0], &s, "11", &err));
    CHECK_CONTAINS(err.message, "between 0 and 10");
    CHECK_STATUS(GP_EINVAL, gp_params_set(&sample_params[1], &s, "2.5", &err));
    CHECK_STATUS(GP_EINVAL, gp_params_set(&sample_params[1], &s, "1,2,3", &err));
    CHECK_STATUS(GP_EINVAL, gp_params_set(&sample_params[3], &s, "piecewize", &err));
    CHECK_CONTAINS(err.message, "did you mean 'piecewise'");
    CHECK_STATUS(GP_ELIMIT, gp_params_set(&sample_params[4], &s, "12345678", &err));
    CHECK_NEAR(0.5, s.rate, 0);
    CHECK(gp_params_changed(&sample_params[0], &s));
    CHECK(!gp_params_changed(&sample_params[2], &s));
}

TEST(a_repeated_parameter_keeps_all_values_as_lines)
{
    static const gp_param lines = { .name = "option", .type = GP_PARAM_TEXT, .count = 8, .repeats = true };
    char text[8] = "";
    gp_error err;

    REQUIRE_OK(gp_params_set(&lines, text, "ab", &err), err);
    REQUIRE_OK(gp_params_set(&lines, text, "cd", &err), err);
    CHECK_TEXT("ab\ncd", text);
    CHECK_STATUS(GP_ELIMIT, gp_params_set(&lines, text, "ef", &err));
    CHECK_TEXT("ab\ncd", text);
}

TEST(parameters_round_trip_through_json)
{
    sample s, t;
    gp_error err;
    gp_buffer buffer;
    gp_json_writer writer;
    gp_json *document;

    gp_params_default(sample_params, &s);
    s.rate = 0.1;
    s.stride[0] = 7;
    s.schedule = 1;
    strcpy(s.name, "a\"b");
    gp_buffer_init(&buffer, 4096);
    gp_json_writer_init(&writer, &buffer, false);
    gp_json_begin_object(&writer, NULL);
    gp_params_to_json(sample_params, &s, false, &writer);
    gp_json_end_object(&writer);
    REQUIRE_OK(gp_json_writer_finish(&writer, &err), err);
    CHECK_CONTAINS(gp_buffer_text(&buffer), "\"stride\": [7, 1]");
    CHECK_CONTAINS(gp_buffer_text(&buffer), "\"learn-rate\": 0.1,");
    REQUIRE_OK(gp_json_parse(&document, gp_buffer_text(&buffer), buffer.bytes, &err), err);
    gp_params_default(sample_params, &t);
    REQUIRE_OK(gp_params_from_json(sample_params, &t, document, &err), err);
    CHECK(s.rate == t.rate && s.stride[0] == 7 && t.schedule == 1);
    CHECK_TEXT("a\"b", t.name);
    gp_json_free(document);
    REQUIRE_OK(gp_json_parse(&document, "{\"strde\": 1}", 12, &err), err);
    CHECK_STATUS(GP_EINVAL, gp_params_from_json(sample_params, &t, document, &err));
    CHECK_CONTAINS(err.message, "did you mean 'stride'");
    gp_json_free(document);
    gp_buffer_deinit(&buffer);
}

TEST(fixed_numbers_are_written_as_printf_writes_them)
{
    static const double values[] = { 0,         1,    -1,          0.5,  9.99996,  -0.00006,
                                     1234.5678, 1e-7, 99999.99999, 1e14, -1e14,    1e300,
                                     123456,    0.1,  0.00015,     2.5,  -12.3456, 1.0 / 3 };

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        for (unsigned decimals = 0; decimals <= 9; decimals++) {
            char expected[400];
            gp_buffer text;
            gp_json_writer writer;

            gp_buffer_init(&text, 1000);
            gp_json_writer_init(&writer, &text, false);
            gp_json_put_fixed(&writer, NULL, decimals, values[i]);
            snprintf(expected, sizeof(expected), "%.*f", (int)decimals, values[i]);
            if (strtod(expected, NULL) == 0) /* no negative zero */
                snprintf(expected, sizeof(expected), "%.*f", (int)decimals, 0.0);
            CHECK_TEXT(expected, gp_buffer_text(&text));
            gp_buffer_clear(&text);
            gp_json_writer_init(&writer, &text, false);
            gp_json_put_fixed(&writer, NULL, decimals, (i & 1) != 0 ? NAN : -INFINITY);
            CHECK_TEXT("null", gp_buffer_text(&text));
            gp_buffer_deinit(&text);
        }
}

TEST(parsed_json_is_written_with_equal_numbers)
{
    static const char text[] = "[3.0, 2.5, -7, 9007199254740993, -9223372036854775808, 1e30, -3e94, 1e308]";
    gp_json *document;
    gp_json_writer writer;
    gp_buffer buffer;
    gp_error err;

    REQUIRE_OK(gp_json_parse(&document, text, strlen(text), &err), err);
    gp_buffer_init(&buffer, 1000);
    gp_json_writer_init(&writer, &buffer, false);
    gp_json_put_value(&writer, NULL, document);
    REQUIRE_OK(gp_json_writer_finish(&writer, &err), err);
    CHECK_TEXT("[3, 2.5, -7, 9007199254740993, -9223372036854775808, 1e+30, -3e+94, 1e+308]",
               gp_buffer_text(&buffer));
    gp_buffer_deinit(&buffer);
    gp_json_free(document);
}

/* The last character is cut. */
TEST(bytes_that_are_no_utf8_are_written_as_question_marks)
{
    gp_json_writer writer;
    gp_json *document;
    gp_buffer buffer;
    gp_error err;

    gp_buffer_init(&buffer, 1000);
    gp_json_writer_init(&writer, &buffer, false);
    gp_json_put_text(&writer, NULL, "\xc3\xbc\xff\xe2\x82\xac\xc0\x80\n\xf0\x9f\x98\x80\xe2\x82");
    REQUIRE_OK(gp_json_writer_finish(&writer, &err), err);
    CHECK_TEXT("\"\xc3\xbc?\xe2\x82\xac??\\u000a\xf0\x9f\x98\x80??\"", gp_buffer_text(&buffer));
    REQUIRE_OK(gp_json_parse(&document, gp_buffer_text(&buffer), buffer.bytes, &err), err);
    gp_json_free(document);
    gp_buffer_deinit(&buffer);
}

TEST(json_parser_rejects_depth_duplicates_and_garbage)
{
    gp_json *document;
    gp_error err;
    char deep[200];

    memset(deep, '[', sizeof(deep));
    CHECK_STATUS(GP_ELIMIT, gp_json_parse(&document, deep, sizeof(deep), &err));
    CHECK_STATUS(GP_EINVAL, gp_json_parse(&document, "{\"a\":1,\"a\":2}", 13, &err));
    CHECK_STATUS(GP_EINVAL, gp_json_parse(&document, "{\"a\":1} x", 9, &err));
    CHECK_CONTAINS(err.message, "line 1");
    CHECK_STATUS(GP_EINVAL, gp_json_parse(&document, "", 0, &err));
}

TEST(spell_distance_counts_a_swap_as_one_edit)
{
    const char *best = NULL;
    unsigned distance = 0;

    CHECK_INT(1, gp_spell_distance("trian", "train"));
    CHECK_INT(3, gp_spell_distance("kitten", "sitting"));
    CHECK_INT(4, gp_spell_distance("", "down"));
    gp_spell_offer("statsu", "status", &best, &distance);
    gp_spell_offer("statsu", "train", &best, &distance);
    CHECK_TEXT("status", best);
    best = NULL;
    gp_spell_offer("xyzzy", "train", &best, &distance);
    CHECK(best == NULL);
}

TEST(shape_check_detects_overflow)
{
    gp_error err;
    gp_shape huge = gp_shape3(INT64_MAX / 2, 3, 3), fine = gp_shape3(20, 26, 26);
    char text[64];

    CHECK_STATUS(GP_ELIMIT, gp_shape_check(&huge, INT64_MAX, &err));
    CHECK_STATUS(GP_OK, gp_shape_check(&fine, 1 << 20, &err));
    CHECK_INT(20 * 26 * 26, gp_shape_count(&fine));
    CHECK_TEXT("20x26x26", gp_shape_format(&fine, text, sizeof(text)));
}

/* ---- timeouts ---- */

/* While this test sleeps, no thread reads the clock. This simulates a suspended process. */
TEST(a_suspension_shortens_a_timeout_by_at_most_one_gap)
{
    gp_timeout timeout = gp_timeout_in(5 * GP_TIMEOUT_GAP_MS);

    CHECK_INT(GP_TIMEOUT_SLICE_MS, gp_timeout_slice(timeout));
    gp_sleep_ms(GP_TIMEOUT_GAP_MS + 300);
    CHECK(gp_timeout_left(timeout) <= 4 * GP_TIMEOUT_GAP_MS);
    CHECK(gp_timeout_left(timeout) > 4 * GP_TIMEOUT_GAP_MS - 200);
    timeout = gp_timeout_in(20);
    for (int reads = 0; gp_timeout_left(timeout) > 0; reads++) {
        CHECK(reads < 1000 && gp_timeout_slice(timeout) <= 20);
        gp_sleep_ms(1);
    }
    CHECK_INT(0, gp_timeout_slice(timeout));
}

/* ---- external text ---- */

TEST(gp_printable_keeps_utf8_and_replaces_control_characters)
{
    static const char *const pairs[][2] = {
        { "plain, K\xc3\xa4tzchen \xe2\x82\xac \xf0\x9f\x90\x88",
          "plain, K\xc3\xa4tzchen \xe2\x82\xac \xf0\x9f\x90\x88" },
        { "\033]0;title\007", "?]0;title?" },
        { "two\nlines\r", "two?lines?" },
        { "a\tb", "a b" },
        { "delete\x7f", "delete?" },
        { "C1 \xc2\x9b"
          "31m",
          "C1 ?31m" },
        { "right to left \xe2\x80\xae", "right to left ?" },
        { "line separator \xe2\x80\xa8.", "line separator ?." },
        { "not UTF-8 \xff\xc3", "not UTF-8 ??" },
        { "", "" },
    };
    gp_error err;

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        char text[80];

        snprintf(text, sizeof(text), "%s", pairs[i][0]);
        CHECK_STATUS(strcmp(pairs[i][0], pairs[i][1]) == 0 ? GP_OK : GP_EINVAL,
                     gp_printable_check("name", text, &err));
        CHECK_TEXT(pairs[i][1], gp_printable(text));
    }
    gp_printable_check("job name", "ab\033", &err);
    CHECK_CONTAINS(err.message,
                   "the job name contains a control character or invalid UTF-8 (0x1b at byte 3)");
    gp_fail(&err, GP_EIO, "cannot read %s", "a\x7f\xc2\x9b.npy");
    CHECK_TEXT("cannot read a??.npy", err.message);
}

/* ---- OOM kills ---- */

/* Create a file root/name, as a replacement for a file in /sys/fs/cgroup. */
static void counter_write(const char *root, const char *name, const char *text)
{
    char path[PATH_MAX];
    gp_error err;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    REQUIRE_OK(gp_directory_make_above(path, 0700, &err), err);
    REQUIRE_OK(gp_file_write(path, text, strlen(text), &err), err);
}

TEST(oom_kills_are_read_from_the_memory_cgroup_of_the_process)
{
    static const struct {
        /* content of /proc/PID/cgroup; expected file, under root or absolute */
        const char *cgroups, *path;
    } rows[] = {
        { "0::/pool.slice/a\n", "/pool.slice/a/memory.events" },
        { "0::/\n", "/memory.events" },
        { "5:cpu,cpuacct:/x\n4:memory:/old/b\n0::/hybrid\n", "/memory/old/b/memory.oom_control" },
        { "3:hugetlb,memory:/old/b\n", "/memory/old/b/memory.oom_control" },
        { "1:memory2:/old/b\n0::/unified-only\n", "/unified/unified-only/memory.events" },
        { "0::/elsewhere\n", "/proc/vmstat" },
        { "no line of that form\n:\n", "/proc/vmstat" },
        { "", "/proc/vmstat" },
    };
    char root[] = "/tmp/gpt-XXXXXX", expected[PATH_MAX];
    gp_memory_kills kills;

    REQUIRE(leftovers_make(root) != NULL);
    counter_write(root, "pool.slice/a/memory.events", "low 0\noom 2\noom_kill 3\n");
    counter_write(root, "memory.events", "oom_kill 0\n");
    counter_write(root, "elsewhere/memory.events", "low 0\n");
    counter_write(root, "memory/old/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
    counter_write(root, "unified/unified-only/memory.events", "oom_kill 0\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        /* Rows without a group file fall back to the absolute path /proc/vmstat. */
        bool counted = rows[i].path[1] != 'p' || strstr(rows[i].path, "slice") != NULL;

        gp_memory_kills_find(&kills, rows[i].cgroups, root);
        snprintf(expected, sizeof(expected), "%s%s", counted ? root : "", rows[i].path);
        CHECK_TEXT(expected, kills.path);
    }
    gp_memory_kills_find(&kills, rows[0].cgroups, root);
    kills.earlier = 3;
    CHECK(!gp_memory_kills_grew(&kills));
    counter_write(root, "pool.slice/a/memory.events", "oom_kill 4\n");
    CHECK(gp_memory_kills_grew(&kills));
    kills.earlier = UINT64_MAX;
    CHECK(!gp_memory_kills_grew(&kills));
}

TEST(oom_kills_older_than_two_readings_are_ignored)
{
    gp_memory_kills kills;

    gp_memory_kills_begin(&kills, (uint32_t)getpid());
    CHECK(!gp_memory_kills_grew(&kills));
    kills.earlier = 1;
    kills.latest = 2;
    gp_memory_kills_watch(&kills, (uint32_t)getpid(), kills.latest_ms + 999);
    CHECK_INT(1, kills.earlier);
    gp_memory_kills_watch(&kills, (uint32_t)getpid(), kills.latest_ms + 1000);
    CHECK_INT(2, kills.earlier);
}

/* ---- files ---- */

TEST(an_exited_process_has_no_address_space)
{
    gp_proc_stat stat;
    siginfo_t info;
    pid_t child = fork();

    if (child == 0)
        _exit(0);
    REQUIRE(child > 0 && waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
    CHECK(gp_proc_stat_read(&stat, child));
    CHECK_INT(0, stat.address_bytes);
    CHECK(stat.state == 'Z' && stat.parent == getpid());
    CHECK(waitpid(child, NULL, 0) == child && !gp_proc_stat_read(&stat, child));
    CHECK(gp_proc_stat_read(&stat, getpid()) && stat.address_bytes > 0);
}

static void *umask_readings(void *context)
{
    (void)context;
    for (int i = 0; i < 2000; i++)
        CHECK_INT(027, gp_umask());
    return NULL;
}

TEST(umask_is_read_by_two_threads_and_unchanged)
{
    const mode_t before = umask(027);
    pthread_t other;

    REQUIRE(gp_thread_start(&other, "other", 0, umask_readings, NULL) == 0);
    umask_readings(NULL);
    pthread_join(other, NULL);
    CHECK_INT(027, umask(before));
}

TEST(files_that_are_not_regular_are_rejected_without_blocking)
{
    char root[] = "/tmp/gpt-XXXXXX", path[PATH_MAX];
    uint8_t *data;
    size_t bytes;
    gp_error err;

    REQUIRE(leftovers_make(root) != NULL);
    snprintf(path, sizeof(path), "%s/pipe", root);
    REQUIRE(mkfifo(path, 0600) == 0);
    /* The FIFO has no writer, so a blocking open would never return. */
    CHECK_STATUS(GP_ELIMIT, gp_file_read(&data, &bytes, path, 100, &err));
    CHECK_CONTAINS(err.message, "pipe is not a regular file");
    CHECK_STATUS(GP_ELIMIT, gp_file_read(&data, &bytes, root, 100, &err));
    CHECK_CONTAINS(err.message, "is not a regular file");
    snprintf(path, sizeof(path), "%s/file", root);
    REQUIRE_OK(gp_file_write(path, "1234", 4, &err), err);
    CHECK_STATUS(GP_ELIMIT, gp_file_read(&data, &bytes, path, 3, &err));
    CHECK_CONTAINS(err.message, "file has 4 bytes, at most 3 are supported");
    REQUIRE_OK(gp_file_read(&data, &bytes, path, 4, &err), err);
    CHECK_INT(4, bytes);
    gp_free(data);
}

TEST(beginning_and_end_of_a_file_are_read)
{
    char path[] = "/tmp/gp-ends-XXXXXX", text[17] = "";
    int fd = mkstemp(path);

    REQUIRE(fd >= 0 && unlink(path) == 0);
    CHECK_INT(0, gp_read_ends(fd, text, 16));
    REQUIRE(write(fd, "0123456789abcdef", 16) == 16);
    CHECK_INT(16, gp_read_ends(fd, text, 16));
    CHECK_TEXT("0123456789abcdef", text);
    REQUIRE(write(fd, "ghij", 4) == 4);
    CHECK_INT(16, gp_read_ends(fd, text, 16));
    CHECK_TEXT("0123\n9abcdefghij", text);
    close(fd);
}

TEST(gp_file_write_follows_a_symbolic_link_and_replaces_its_target)
{
    char root[] = "/tmp/gpt-XXXXXX", target[100], link[100], dangling[100];
    uint8_t *data = NULL;
    size_t bytes;
    struct stat facts;
    gp_error err;

    REQUIRE(leftovers_make(root) != NULL);
    snprintf(target, sizeof(target), "%s/target", root);
    snprintf(link, sizeof(link), "%s/link", root);
    snprintf(dangling, sizeof(dangling), "%s/dangling", root);
    REQUIRE_OK(gp_file_write(target, "old", 3, &err), err);
    REQUIRE(symlink("target", link) == 0 && symlink("nothing", dangling) == 0);
    REQUIRE_OK(gp_file_write(link, "new", 3, &err), err);
    CHECK(lstat(link, &facts) == 0 && S_ISLNK(facts.st_mode));
    REQUIRE_OK(gp_file_read(&data, &bytes, target, 100, &err), err);
    CHECK(bytes == 3 && memcmp(data, "new", 3) == 0);
    gp_free(data);
    CHECK_STATUS(GP_ENOENT, gp_file_write(dangling, "new", 3, &err));
    CHECK_CONTAINS(err.message, "symbolic link");
    REQUIRE_OK(gp_file_write("/dev/null", "new", 3, &err), err);
    CHECK(lstat("/dev/null", &facts) == 0 && S_ISCHR(facts.st_mode));
}

/* ---- directories ---- */

TEST(gp_directory_make_creates_parents_and_names_the_directory_that_fails)
{
    char root[] = "/tmp/gpt-XXXXXX", path[PATH_MAX + 100];
    struct stat facts;
    gp_error err;

    REQUIRE(leftovers_make(root) != NULL);
    snprintf(path, sizeof(path), "%s/a//b/c/", root);
    CHECK_STATUS(GP_OK, gp_directory_make(path, 0700, &err));
    CHECK(stat(path, &facts) == 0 && S_ISDIR(facts.st_mode) && (facts.st_mode & 0777) == 0700);
    CHECK_STATUS(GP_OK, gp_directory_make(path, 0777, &err));
    CHECK(stat(path, &facts) == 0 && (facts.st_mode & 0777) == 0700);
    snprintf(path, sizeof(path), "%s/a/d/file", root);
    CHECK_STATUS(GP_OK, gp_directory_make_above(path, 0700, &err));
    CHECK(stat(path, &facts) != 0);
    REQUIRE_OK(gp_file_write(path, "", 0, &err), err);
    CHECK_STATUS(GP_EIO, gp_directory_make(path, 0700, &err));
    CHECK_CONTAINS(err.message, "/a/d/file: Not a directory");
    strcat(path, "/e/f");
    CHECK_STATUS(GP_EIO, gp_directory_make_above(path, 0700, &err));
    CHECK_CONTAINS(err.message, "/a/d/file for /tmp/gpt-");
    CHECK_CONTAINS(err.message, "/a/d/file/e/f: Not a directory");
    CHECK_STATUS(GP_OK, gp_directory_make_above("file", 0700, &err));
    CHECK_STATUS(GP_OK, gp_directory_make("/", 0700, &err));
    memset(path, 'x', PATH_MAX);
    path[PATH_MAX] = '\0';
    CHECK_STATUS(GP_ELIMIT, gp_directory_make(path, 0700, &err));
    CHECK_CONTAINS(err.message, "has 4096 bytes, at most 4095");
}

/* ---- sealed memory files ---- */

TEST(a_sealed_file_is_immutable_and_is_mapped_only_at_its_exact_size)
{
    const char text[] = "sealed";
    const void *data = NULL;
    gp_error err;
    int fd;

    REQUIRE_OK(gp_seal_new(&fd, text, sizeof(text), &err), err);
    CHECK(pwrite(fd, "x", 1, 0) < 0 && ftruncate(fd, 1) != 0 && ftruncate(fd, 100) != 0);
    CHECK_STATUS(GP_EPROTO, gp_seal_map(&data, fd, sizeof(text) + 1, &err));
    CHECK_CONTAINS(err.message, "has 7 bytes, must have 8");
    REQUIRE_OK(gp_seal_map(&data, fd, sizeof(text), &err), err);
    CHECK_TEXT(text, (const char *)data);
    munmap((void *)(uintptr_t)data, sizeof(text));
    close(fd);
    REQUIRE_OK(gp_seal_new(&fd, text, 0, &err), err);
    CHECK_STATUS(GP_OK, gp_seal_map(&data, fd, 0, &err));
    CHECK(data == NULL);
    close(fd);
}

/* ---- numbers and plurals ---- */

TEST(numbers_are_printed_with_the_fewest_digits_that_read_back_equal)
{
    char text[GP_NUMBER_BYTES];

    CHECK_TEXT("-0.1", gp_number_text(-0.1, text));
    CHECK_TEXT("0.1", gp_float_text(0.1f, text));
    CHECK_TEXT("0.30000000000000004", gp_number_text(0.1 + 0.2, text));
    CHECK_TEXT("1", gp_number_text(1, text));
    CHECK_TEXT("1e+06", gp_number_text(1e6, text));
    CHECK_TEXT("1000000", gp_digits_text(1e6, text));
    CHECK_TEXT("-9007199254740992", gp_digits_text(-9007199254740992, text));
    CHECK_TEXT("1e+16", gp_digits_text(1e16, text));
    CHECK_TEXT("0.5", gp_digits_text(0.5, text));
    CHECK_TEXT("s", gp_plural(0));
    CHECK_TEXT("", gp_plural(1));
}
