/* test_behave_failures.c: workers, clients and objects that fail in every way do not break the
 * team's guarantees. */
#include <sys/stat.h>

#include "tests/service/team/behave.h"

static pid_t pid_on(uint32_t worker)
{
    gp_future *future = call_with((gp_parfeval_request){ .worker = worker }, "where", "", 0);
    pid_t pid = (pid_t)place_of(future).pid;

    gp_future_free(future);
    return pid;
}

/* ---- exit reasons ---- */

TEST(exit_reasons_are_distinguished)
{
    static const struct {
        const char *how, *reported;
    } ways[] = {
        { "segv", "signal 11" }, { "abort", "signal 6" },           { "kill", "signal 9" },
        { "fpe", "signal 8" },   { "exit3", "exited with code 3" }, { "exit0", "exited with code 0" },
        { "stack", "signal 11" }
    };

    BEGIN(2);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        gp_future *future =
            call_with((gp_parfeval_request){ .attempts = 1 }, "die", ways[i].how, strlen(ways[i].how));

        CHECK_STATUS(GP_EPEER, end_of(future));
        CHECK_CONTAINS(err.message, ways[i].reported);
        CHECK_CONTAINS(err.message, "worker ");
        CHECK_CONTAINS(err.message, "while it ran this call");
        gp_future_free(future);
    }
    CHECK_INT(sizeof(ways) / sizeof(ways[0]), team_info().worker_deaths);
    CHECK_INT(2, workers_alive());
}

TEST(out_of_memory_is_a_task_error_not_a_worker_failure)
{
    BEGIN(1);
    gp_future *future = call("take_all_memory", 0);

    CHECK_STATUS(GP_ENOMEM, end_of(future));
    CHECK_CONTAINS(err.message, "no memory after");
    CHECK_INT(0, team_info().worker_deaths);
    CHECK_INT(9, number_of(call("square", 3)));
}

TEST(heap_corruption_affects_only_the_worker_of_the_task)
{
    gp_future *futures[20];

    BEGIN(2);
    pid_t other = pid_on(2);
    gp_future *spoiler = call_with((gp_parfeval_request){ .worker = 1, .attempts = 1 }, "die", "heap", 4);

    for (int i = 0; i < 20; i++)
        futures[i] = call("square", i);
    CHECK_STATUS(GP_EPEER, end_of(spoiler));
    for (int i = 0; i < 20; i++) {
        CHECK_INT(i * i, number_of(futures[i]));
        gp_future_free(futures[i]);
    }
    CHECK_INT(other, pid_on(2));
    CHECK_INT(1, team_info().worker_deaths);
}

TEST(child_of_a_task_does_not_hide_a_worker_failure)
{
    BEGIN(2);
    gp_future *future =
        call_with((gp_parfeval_request){ .attempts = 1 }, "fork_and_die", pools_root, strlen(pools_root));

    CHECK_STATUS(GP_EPEER, end_of(future)); /* while the child is running */
    CHECK_CONTAINS(err.message, "signal 9");
    CHECK_INT(2, workers_alive());
    CHECK_INT(9, number_of(call("square", 3)));
}

TEST(closing_all_descriptors_costs_only_the_worker)
{
    BEGIN(2);
    gp_future *closer = call_with((gp_parfeval_request){ .attempts = 1 }, "close_all", "", 0);

    CHECK_STATUS(GP_OK, gp_future_wait(closer, POOLS_TIMEOUT_MS, &err));
    CHECK_INT(9, number_of(call("square", 3)));
    CHECK_INT(2, workers_alive());
}

/* ---- rerun of calls ---- */

TEST(call_of_a_killed_worker_is_rerun_and_counted)
{
    BEGIN(2);
    gp_future *future = call_text("hold_once", ""), *other;
    gp_status_reply *reply;

    CHECK(wait_running(future));
    reply = pools_settled(pool);
    REQUIRE(reply != NULL);
    for (uint32_t i = 0; i < reply->workers_count; i++)
        if (reply->workers[i].slot.index == info_of(future).worker)
            kill((pid_t)reply->workers[i].slot.pid, SIGKILL);
    gp_free(reply);
    CHECK_INT(2, place_of(future).attempt);
    CHECK_INT(2, info_of(future).attempts);
    CHECK_INT(0, info_of(future).retries);
    CHECK_INT(1, team_info().rerun);
    other = call("square", 4);
    CHECK_INT(16, number_of(other));
    CHECK_INT(2, workers_alive());
}

TEST(call_that_kills_three_workers_fails)
{
    BEGIN(2);
    gp_future *poison = call_text("die", "segv"), *lucky = call("die_until", 3);

    CHECK_STATUS(GP_EPEER, end_of(poison));
    CHECK_CONTAINS(err.message, "signal 11");
    CHECK_CONTAINS(err.message, "not retried");
    CHECK_INT(3, info_of(poison).attempts);
    CHECK_INT(3, number_of(lucky));
    CHECK_INT(5, team_info().worker_deaths);
    CHECK_INT(2, workers_alive());
}

TEST(call_limited_to_one_attempt_is_not_rerun)
{
    behave_tally argument = { .number = 1, .ms = 1 << 30 }; /* about 12 days */
    struct stat facts = { 0 };
    char line[64] = "";
    FILE *file;

    BEGIN(1);
    snprintf(argument.path, sizeof(argument.path), "%s/tally", pools_root);
    gp_future *future =
        call_with((gp_parfeval_request){ .attempts = 1 }, "tally", &argument, sizeof(argument));

    while (stat(argument.path, &facts) != 0 || facts.st_size == 0)
        gp_sleep_ms(1);
    gp_status_reply *reply = pools_settled(pool);

    REQUIRE(reply != NULL);
    kill((pid_t)reply->workers[0].slot.pid, SIGKILL);
    gp_free(reply);
    CHECK_STATUS(GP_EPEER, end_of(future));
    CHECK_INT(36, number_of(call("square", 6)));
    file = fopen(argument.path, "re");
    REQUIRE(file != NULL);
    CHECK(fread(line, 1, sizeof(line) - 1, file) > 0);
    fclose(file);
    CHECK_TEXT("begin 1\n", line);
}

/* Count "end N" lines: each call has one. A second one is possible only if the worker was killed
 * between the line and the answer, and the call was rerun. */
TEST(finished_calls_are_not_rerun_and_no_call_is_lost)
{
    enum { CALLS = 60 };
    behave_tally argument = { .ms = 3 };
    gp_future *futures[CALLS];
    int ends[CALLS] = { 0 }, deaths = 0, again = 0;
    char line[64];

    BEGIN(2);
    snprintf(argument.path, sizeof(argument.path), "%s/tally", pools_root);
    for (int i = 0; i < CALLS; i++) {
        argument.number = i;
        futures[i] = call_with((gp_parfeval_request){ 0 }, "tally", &argument, sizeof(argument));
    }
    for (int i = 0; i < CALLS; i++) {
        CHECK_INT(i, number_of(futures[i]));
        if (i % 15 == 5) {
            gp_status_reply *reply = pools_settled(pool);

            for (uint32_t w = 0; reply != NULL && w < reply->workers_count; w++)
                if (reply->workers[w].slot.index == (uint32_t)(i / 15) % 2 + 1)
                    deaths += kill((pid_t)reply->workers[w].slot.pid, SIGKILL) == 0;
            gp_free(reply);
        }
    }
    FILE *file = fopen(argument.path, "re");

    REQUIRE(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        int number;

        if (sscanf(line, "end %d", &number) == 1 && number >= 0 && number < CALLS)
            ends[number]++;
    }
    fclose(file);
    for (int i = 0; i < CALLS; i++) {
        CHECK(ends[i] >= 1 && ends[i] <= (int)info_of(futures[i]).attempts);
        again += ends[i] - 1;
        gp_future_free(futures[i]);
    }
    CHECK(deaths > 0 && team_info().rerun <= (uint64_t)deaths);
    CHECK((uint64_t)again <= team_info().rerun);
}

TEST(results_survive_the_failure_of_their_worker)
{
    gp_future *futures[20];

    BEGIN(2);
    for (int i = 0; i < 20; i++)
        futures[i] = call("square", i);
    REQUIRE_OK(gp_futures_wait(futures, 20, GP_WAIT_ALL, POOLS_TIMEOUT_MS, &err), err);
    kill(pid_on(1), SIGKILL);
    kill(pid_on(2), SIGKILL);
    for (int i = 0; i < 20; i++) {
        CHECK_INT(i * i, number_of(futures[i]));
        gp_future_free(futures[i]);
    }
    CHECK_INT(1, number_of(call("square", 1)));
}

TEST(replacement_worker_gets_client_values_but_not_task_state)
{
    const void *data;
    size_t bytes;

    BEGIN(1);
    REQUIRE_OK(gp_team_put(team, GP_EVERY_WORKER, "given", "again", 5, &err), err);
    gp_future *kept = call_text("put_value", "kept=not");

    CHECK_STATUS(GP_OK, end_of(kept));
    gp_future *death = call_with((gp_parfeval_request){ .attempts = 1 }, "die", "kill", 4);

    CHECK_STATUS(GP_EPEER, end_of(death));
    gp_future *given = call_text("get_value", "given"), *gone = call_text("get_value", "kept");

    CHECK_STATUS(GP_OK, gp_future_result(given, &data, &bytes, &err));
    CHECK(bytes == 5 && memcmp(data, "again", 5) == 0);
    CHECK_STATUS(GP_ENOENT, end_of(gone));
}

TEST(replacement_worker_gets_the_value_that_a_failed_put_did_not_replace)
{
    static volatile sig_atomic_t stop;
    const void *data;
    size_t bytes;

    BEGIN(1);
    REQUIRE_OK(team_again(&(gp_team_options){ .log = take_line, .stop = &stop }), err);
    REQUIRE_OK(gp_team_put(team, GP_EVERY_WORKER, "given", "first", 5, &err), err);
    const pid_t worker = pid_on(1);
    gp_future *death =
        call_with((gp_parfeval_request){ .attempts = 1 }, "hold", in_root("go"), strlen(in_root("go")));

    REQUIRE(wait_begun(1));
    stop = 1;
    CHECK_STATUS(GP_ECANCELED, gp_team_put(team, GP_EVERY_WORKER, "given", "other", 5, &err));
    stop = 0;
    kill(worker, SIGKILL);
    CHECK_STATUS(GP_EPEER, end_of(death));
    gp_future *given = call_text("get_value", "given");

    CHECK_STATUS(GP_OK, gp_future_result(given, &data, &bytes, &err));
    CHECK(bytes == 5 && memcmp(data, "first", 5) == 0);
}

TEST(cancel_without_grace_does_not_fail_the_next_call)
{
    BEGIN(1);
    for (int round = 0; round < 5; round++) {
        gp_future *canceled = call("nap", 60000); /* ends at once when it is canceled */
        gp_future *next =
            call_with((gp_parfeval_request){ .attempts = 1 }, "nap", &(int64_t){ 20 }, sizeof(int64_t));

        AWAIT(info_of(canceled).state == GP_FUTURE_RUNNING, 1);
        CHECK_STATUS(GP_OK, gp_future_cancel_grace(canceled, 0, &err));
        CHECK_STATUS(GP_ECANCELED, end_of(canceled));
        CHECK_STATUS(GP_OK, end_of(next));
        CHECK_INT(1, info_of(next).attempts);
        gp_future_free(canceled);
        gp_future_free(next);
    }
}

TEST(calls_queued_at_a_failing_worker_are_all_served)
{
    enum { CALLS = 2000 };
    static gp_future *futures[CALLS];

    BEGIN(2);
    for (int i = 0; i < CALLS; i++)
        futures[i] = i % 500 == 7 ? call_with((gp_parfeval_request){ .attempts = 1 }, "die", "kill", 4)
                                  : call("square", i);
    for (int i = 0; i < CALLS; i++) {
        if (i % 500 == 7)
            CHECK_STATUS(GP_EPEER, end_of(futures[i]));
        else
            CHECK_INT((int64_t)i * i, number_of(futures[i]));
        gp_future_free(futures[i]);
    }
    CHECK_INT(4, team_info().worker_deaths);
}

TEST(hundreds_of_kills_lose_no_submitted_call)
{
#ifdef __OPTIMIZE__
    enum { ROUNDS = 500 };
#else
    enum { ROUNDS = 150 };
#endif
    uint32_t seed = 1;
    int files;

    BEGIN(2);
    find("square");
    files = descriptors_of(getpid());
    for (int round = 0; round < ROUNDS; round++) {
        gp_future *futures[4];

        for (int i = 0; i < 4; i++)
            futures[i] = i == round % 4 ? call_with((gp_parfeval_request){ .attempts = 1 }, "die", "kill", 4)
                                        : call("square", round + i);
        seed = seed * 1664525 + 1013904223;
        if (seed >> 30 == 0)
            gp_future_cancel(futures[seed >> 28 & 3]);
        for (int i = 0; i < 4; i++) {
            gp_status status = end_of(futures[i]);

            CHECK(status == GP_OK || status == GP_EPEER || status == GP_ECANCELED);
            CHECK(i == round % 4 ? status != GP_OK : status != GP_EPEER);
            gp_future_free(futures[i]);
        }
    }
    CHECK(team_info().worker_deaths >= ROUNDS / 2);
    CHECK_INT(2, workers_alive());
    CHECK(descriptors_of(getpid()) <= files + 4);
}

/* Each call ends once, with a result or canceled, and the team keeps serving. */
TEST(a_cancel_that_races_with_the_end_has_one_outcome)
{
    enum { TIMES = 5000 };
    int done = 0, canceled = 0;
    bool kept = true;
    pid_t pid;

    BEGIN(1);
    pid = pid_on(1);
    for (int i = 0; i < TIMES; i++) {
        gp_future *future = call("square", i);
        gp_status status;

        for (int spin = 0; spin < i % 64 * 50; spin++)
            __asm__ volatile("");
        int64_t since_ms = gp_now_ms();

        gp_future_cancel(future);
        status = end_of(future);
        if (kept && !workers_kept(since_ms))
            GP_TEST_FAIL("call %d lost its worker", i);
        kept = team_info().worker_deaths == 0;
        done += status == GP_OK;
        canceled += status == GP_ECANCELED;
        CHECK_STATUS(status, end_of(future));
        gp_future_free(future);
    }
    CHECK_INT(TIMES, done + canceled);
    CHECK_INT(TIMES + 1, team_info().ended);
    CHECK_INT(canceled, team_info().canceled);
    CHECK((pid == pid_on(1)) == kept);
}

/* ---- interrupted large payloads ---- */

TEST(large_result_lost_with_its_worker_is_an_error_without_leaks)
{
    int64_t length = 64 << 20;
    int files;

    BEGIN(2);
    gp_future *whole = call("make_bytes", length), *cut;
    const unsigned char *data;
    size_t bytes;

    REQUIRE_OK(gp_future_result(whole, (const void **)&data, &bytes, &err), err);
    CHECK(bytes == (size_t)length && data[length - 1] == (length - 1) % 251);
    gp_future_free(whole);
    files = descriptors_of(getpid());
    for (int i = 0; i < 3; i++) {
        cut = call_with((gp_parfeval_request){ .attempts = 1 }, "die_with_a_result", &length, sizeof(length));
        CHECK_STATUS(GP_EPEER, end_of(cut));
        gp_future_free(cut);
    }
    CHECK_INT(1, number_of(call("square", 1)));
    CHECK(descriptors_of(getpid()) <= files + 4);
}

TEST(large_argument_survives_the_failure_of_its_reader)
{
    enum { LENGTH = 64 << 20 };
    unsigned char *argument = malloc(LENGTH);
    const unsigned char *data = NULL;
    size_t bytes = 0;

    REQUIRE(argument != NULL);
    for (size_t i = 0; i < LENGTH; i++)
        argument[i] = (unsigned char)(i % 253);
    BEGIN(2);
    gp_future *first = call_with((gp_parfeval_request){ 0 }, "echo", argument, LENGTH);

    gp_sleep_ms(10); /* the payload may be on the way to the worker, in use, or on the way back */
    gp_status_reply *reply = pools_settled(pool);

    for (uint32_t i = 0; reply != NULL && i < reply->workers_count; i++)
        kill((pid_t)reply->workers[i].slot.pid, SIGKILL);
    gp_free(reply);
    REQUIRE_OK(gp_future_result(first, (const void **)&data, &bytes, &err), err);
    CHECK(bytes == LENGTH && memcmp(argument, data, LENGTH) == 0);
    gp_future_free(first);
    free(argument);
}

/* Another client, forked before this process opens a pool. When told to start, it sends 64 MiB in
 * one direction until killed. */
typedef struct other_client {
    pid_t pid;
    int tell, reported;
} other_client;

static void move_large(const char *task, int reported)
{
    int64_t length = 64 << 20;
    void *large = calloc(1, (size_t)length);
    bool there = strcmp(task, "echo") == 0;

    if (large == NULL || gp_pool_open(&pool, NULL, NULL) != GP_OK ||
        gp_team_open(&team, pool, NULL, NULL) != GP_OK)
        return;
    find(task);
    if (write(reported, "r", 1) != 1)
        return;
    for (;;) {
        gp_future *future = call_with((gp_parfeval_request){ 0 }, task, there ? large : &length,
                                      there ? (size_t)length : sizeof(length));

        if (end_of(future) != GP_OK)
            return;
        gp_future_free(future);
    }
}

static other_client client_fork(const char *task)
{
    other_client other;
    int tell[2], reported[2];
    char byte;

    if (pipe2(tell, O_CLOEXEC) != 0 || pipe2(reported, O_CLOEXEC) != 0)
        abort();
    fflush(stdout);
    other = (other_client){ .pid = fork(), .tell = tell[1], .reported = reported[0] };
    if (other.pid == 0) {
        close(tell[1]);
        if (read(tell[0], &byte, 1) == 1)
            move_large(task, reported[1]);
        _exit(1);
    }
    close(tell[0]);
    close(reported[1]);
    return other;
}

static void client_kill_amid(other_client *other)
{
    gp_status_reply *reply;
    char byte;

    CHECK_INT(1, write(other->tell, "g", 1));
    CHECK_INT(1, read(other->reported, &byte, 1));
    gp_sleep_ms(35);
    kill(other->pid, SIGKILL);
    waitpid(other->pid, NULL, 0);
    close(other->tell);
    close(other->reported);
    REQUIRE_OK(team_again(NULL), err); /* waits for the workers */
    CHECK_INT(1, number_of(call("square", 1)));
    gp_team_close(team);
    team = NULL;
    reply = pools_settled(pool);
    for (uint32_t i = 0; reply != NULL && i < reply->workers_count; i++)
        CHECK(descriptors_of((pid_t)reply->workers[i].slot.pid) < 60);
    gp_free(reply);
}

TEST(client_killed_during_a_large_payload_frees_the_pool)
{
    other_client others[2];

    team_prepare();
    others[0] = client_fork("echo");
    others[1] = client_fork("make_bytes");
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .workers = 2, .devices = "cpu" }, &err), err);
    client_kill_amid(&others[0]);
    client_kill_amid(&others[1]);
}

/* ---- invalid input ---- */

static gp_status find_status(const char *file, const char *name)
{
    const gp_function *function = NULL;
    char full[1400];

    snprintf(full, sizeof(full), "%s:%s", file, name);
    err.message[0] = '\0';
    return gp_function_find(&function, team, full, &err);
}

/* Copy at most bytes_max bytes of the object. */
static void copy_object(const char *to, size_t bytes_max)
{
    static char content[1 << 20];
    FILE *from = fopen(object_path, "re"), *into = fopen(to, "we");
    size_t bytes = from == NULL ? 0 : fread(content, 1, sizeof(content), from);

    if (into == NULL || fwrite(content, 1, bytes < bytes_max ? bytes : bytes_max, into) == 0)
        GP_TEST_FAIL("no copy %s", to);
    if (from != NULL)
        fclose(from);
    if (into != NULL)
        fclose(into);
    chmod(to, 0700);
}

TEST(unknown_function_error_suggests_the_nearest_name)
{
    BEGIN(1);
    CHECK_STATUS(GP_ENOENT, find_status(object_path, "squaer"));
    CHECK_CONTAINS(err.message, "squaer");
    CHECK_CONTAINS(err.message, "square");
    CHECK_STATUS(GP_ENOENT, find_status("/nonexistent/tasks.so", "square"));
    CHECK_CONTAINS(err.message, "/nonexistent/tasks.so");
    CHECK(find_status(object_path, "") != GP_OK);
    CHECK(find_status("", "square") != GP_OK);
    CHECK_STATUS(GP_EINVAL, gp_function_find(&(const gp_function *){ NULL }, team, "nocolon", &err));
    CHECK_INT(9, number_of(call("square", 3)));
}

TEST(file_without_tasks_is_refused_without_a_worker_failure)
{
    BEGIN(1);
    write_file("text.so", "int main(void) { return 0; }\n");
    CHECK_STATUS(GP_EINVAL, find_status(in_root("text.so"), "main"));
    CHECK_CONTAINS(err.message, "text.so");
    copy_object(in_root("cut.so"), 3000);
    CHECK_STATUS(GP_EINVAL, find_status(in_root("cut.so"), "square"));
    CHECK_CONTAINS(err.message, "is truncated at");
    CHECK(find_status(pools_root, "square") != GP_OK); /* a folder */
    REQUIRE(mkfifo(in_root("pipe.so"), 0700) == 0);
    CHECK_STATUS(GP_EINVAL, find_status(in_root("pipe.so"), "square"));
    CHECK_STATUS(GP_EINVAL, gp_team_attach(team, "data", in_root("pipe.so"), &err));
    CHECK_STATUS(GP_EINVAL, find_status(in_build("lib/libgradpool.so"),
                                        "gp_version")); /* a shared object without tasks */
    CHECK_CONTAINS(err.message, "task");
    CHECK_STATUS(GP_EVERSION, find_status(in_build("lib/behave_abi.so"), "nothing"));
    CHECK_CONTAINS(err.message, "4000");
    CHECK_STATUS(GP_EINVAL, find_status(in_build("lib/behave_missing.so"), "nothing"));
    CHECK_CONTAINS(err.message, "gp_task_of_tomorrow");
    CHECK_INT(0, team_info().worker_deaths);
    CHECK_INT(9, number_of(call("square", 3)));
}

TEST(object_that_crashes_workers_while_loading_is_refused)
{
    BEGIN(2);
    CHECK_STATUS(GP_EPEER, find_status(in_build("lib/behave_constructor.so"), "nothing"));
    CHECK_CONTAINS(err.message, "signal 6");
    CHECK(team_info().worker_deaths >= 3 && team_info().worker_deaths <= 4);
    CHECK_INT(9, number_of(call("square", 3)));
}

TEST(an_object_that_others_may_write_is_refused)
{
    BEGIN(1);
    copy_object(in_root("mine.so"), SIZE_MAX);
    CHECK_STATUS(GP_OK, find_status(in_root("mine.so"), "square"));
    copy_object(in_root("open.so"), SIZE_MAX);
    chmod(in_root("open.so"), 0722);
    CHECK_STATUS(GP_EPERM, find_status(in_root("open.so"), "square"));
    CHECK_CONTAINS(err.message, "chmod");
}

TEST(impossible_requests_are_refused_at_once_with_the_available_resources)
{
    gp_future *future = NULL;
    gp_spmd_result *block = NULL;
    gp_team *more = NULL;
    gp_team_options nine = { .lease = { .workers_min = 9, .workers_max = 9 } };

    BEGIN(2);
    gp_parfeval_request request = { .environment = GP_ENVIRONMENT_GPU };
    gp_spmd_request spmd = { .workers_min = 3, .workers_max = 3 };

    request.function = spmd.function = find("nothing");
    CHECK_STATUS(GP_ENODEV, gp_parfeval(&future, team, &request, &err));
    CHECK_CONTAINS(err.message, "GPU");
    request = (gp_parfeval_request){ .function = find("nothing"), .worker = 3 };
    CHECK_STATUS(GP_EINVAL, gp_parfeval(&future, team, &request, &err));
    CHECK_CONTAINS(err.message, "2");
    CHECK_STATUS(GP_EINVAL, gp_spmd(&block, team, &spmd, &err));
    CHECK_CONTAINS(err.message, "3");
    CHECK_CONTAINS(err.message, "2");
    CHECK(block == NULL);
    gp_team_close(team);
    team = NULL;
    CHECK_STATUS(GP_ENODEV, gp_team_open(&more, pool, &nine, &err));
    CHECK_CONTAINS(err.message, "2");
    nine.lease = (gp_lease_request){ .environment = GP_ENVIRONMENT_GPU };
    CHECK_STATUS(GP_ENODEV, gp_team_open(&more, pool, &nine, &err));
}
