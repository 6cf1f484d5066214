/* test_capture.c: capture of the text that tasks print. A child process plays the worker, so that
 * it can redirect its output and crash; the test is the client of its link. */
#include "worker/task/capture.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/text/lines.h"
#include "common/base/text/log.h"
#include "proto/task/task_wire.h"
#include "tests/gp_test.h"

enum { WAIT_MS = 120000 };

static gp_link *client, *server;
static int segment, wakeup_fd, log_fd; /* log_fd: memory file, the child's log */
static int go[2];                      /* the child waits in stop_here() for a byte */
static pid_t child;
static gp_capture *capture; /* in the child */

/* Lines received so far: "CALL[.ITERATION]: TEXT\n", and "done ID\n" for results. */
static char got[1 << 20];
static size_t got_bytes;
static uint64_t dropped;

/* ---- the child ---- */

/* Wait until the test calls child_continue(). */
static void stop_here(void)
{
    char byte;

    while (read(go[0], &byte, 1) < 0)
        ;
}

/* Write the result of a call, as the worker does after gp_capture_end(). */
static void answer(uint64_t id)
{
    gp_answer *done;

    gp_capture_lock(capture);
    done = gp_link_reserve(server, 0);
    if (done == NULL)
        _exit(90); /* output has filled the ring */
    done->kind = GP_ANSWER_DONE;
    done->id = id;
    gp_link_commit(server);
    gp_capture_unlock(capture);
    gp_link_ring(server);
}

/* ---- the test ---- */

static void child_continue(void)
{
    CHECK_INT(1, write(go[1], "x", 1));
}

/* Start a child that captures its output and calls `task`. */
static void begin(void (*task)(void))
{
    gp_error err;

    got_bytes = dropped = 0;
    got[0] = '\0';
    wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    log_fd = memfd_create("log", 0);
    if (fcntl(log_fd, F_SETFL, O_APPEND) != 0 || pipe(go) != 0 ||
        gp_link_new(&client, &segment, &err) != GP_OK ||
        gp_link_map(&server, segment, wakeup_fd, false, &err) != GP_OK)
        abort();
    fflush(stdout);
    child = fork();
    if (child != 0)
        return;
    gp_log_setup("test", GP_LOG_INFO);
    if (dup2(log_fd, STDOUT_FILENO) < 0 || dup2(log_fd, STDERR_FILENO) < 0 ||
        gp_capture_open(&capture, server, &err) != GP_OK)
        _exit(91);
    task();
    gp_capture_close(capture);
    _exit(0);
}

/* Receive pending records. */
static void receive(void)
{
    const void *record;
    gp_error err;

    while (gp_link_next(client, &record, &err) == GP_OK) {
        const gp_answer *a = record;
        char *at = got + got_bytes;
        size_t room = sizeof(got) - got_bytes;

        dropped += a->kind == GP_ANSWER_DROPPED && a->count == GP_ANSWER_OUTPUT ? a->value : 0;
        if (a->kind == GP_ANSWER_DONE)
            snprintf(at, room, "done %llu\n", (unsigned long long)a->id);
        else if (a->kind == GP_ANSWER_OUTPUT && (a->flags & GP_ANSWER_ITERATION) != 0)
            snprintf(at, room, "%llu.%lld: %.*s\n", (unsigned long long)a->id, (long long)a->value,
                     (int)a->payload_bytes, (const char *)a->payload);
        else if (a->kind == GP_ANSWER_OUTPUT)
            snprintf(at, room, "%llu: %.*s\n", (unsigned long long)a->id, (int)a->payload_bytes,
                     (const char *)a->payload);
        got_bytes += strlen(at);
        gp_link_drop(client);
    }
}

/* Receive until that text has arrived. */
static void receive_until(const char *text)
{
    int64_t deadline = gp_now_ms() + WAIT_MS;

    for (receive(); strstr(got, text) == NULL && gp_now_ms() < deadline; receive())
        gp_sleep_ms(1);
    CHECK_CONTAINS(got, text);
}

/* Return the log of the child, up to 1 MiB. */
static const char *log_text(void)
{
    static char text[1 << 20];
    ssize_t bytes = pread(log_fd, text, sizeof(text) - 1, 0);

    text[bytes > 0 ? bytes : 0] = '\0';
    return text;
}

static void log_until(const char *text)
{
    int64_t deadline = gp_now_ms() + WAIT_MS;

    while (strstr(log_text(), text) == NULL && gp_now_ms() < deadline)
        gp_sleep_ms(1);
    CHECK_CONTAINS(log_text(), text);
}

/* Wait for the child, receive the rest, and return its wait status. */
static int end(void)
{
    int status = -1;

    if (child > 0)
        waitpid(child, &status, 0);
    child = 0;
    receive();
    return status;
}

TEARDOWN()
{
    if (client == NULL)
        return;
    if (child > 0)
        kill(child, SIGKILL);
    end();
    gp_link_free(client);
    gp_link_free(server);
    client = server = NULL;
    close(segment);
    close(wakeup_fd);
    close(log_fd);
    close(go[0]);
    close(go[1]);
}

static void check_got(const char *text)
{
    if (strcmp(text, got) != 0)
        GP_TEST_FAIL("received:\n%s    expected:\n%s", got, text);
}

/* ---- lines and results ---- */

static void two_calls(void)
{
    gp_capture_begin_call(capture, 7);
    printf("one\n");
    fprintf(stderr, "two\n");
    gp_log(GP_LOG_INFO, "event", "of the worker");
    printf("three");
    gp_capture_end(capture);
    answer(7);
    gp_capture_begin_call(capture, 8);
    gp_capture_end(capture);
    answer(8);
    gp_capture_begin_call(capture, 9);
    if (system("echo a program") != 0)
        _exit(92);
    gp_capture_end(capture);
    answer(9);
}

TEST(lines_precede_the_result_of_their_call_and_the_log_keeps_all_bytes)
{
    begin(two_calls);
    CHECK_INT(0, end());
    check_got("7: one\n7: two\n7: three\ndone 7\ndone 8\n9: a program\ndone 9\n");
    CHECK_CONTAINS(log_text(), "one\ntwo\n");
    CHECK_CONTAINS(log_text(), "three");
    CHECK_CONTAINS(log_text(), "event=event msg=\"of the worker\"");
}

static void three_iterations(void)
{
    gp_capture_begin_call(capture, 3);
    for (int i = -1; i < 2; i++) {
        gp_capture_begin_iteration(capture, i);
        printf("i is %d", i);
        gp_capture_end(capture);
    }
    gp_capture_end(capture);
    gp_capture_begin_call(capture, 4);
    printf("no loop\n");
    gp_capture_end(capture);
}

TEST(lines_of_iterations_have_their_number)
{
    begin(three_iterations);
    CHECK_INT(0, end());
    check_got("3.-1: i is -1\n3.0: i is 0\n3.1: i is 1\n4: no loop\n");
}

static void long_call(void)
{
    gp_capture_begin_call(capture, 1);
    printf("begins\nhalf a ");
    fflush(stdout);
    stop_here();
    printf("line\n");
    gp_capture_end(capture);
    answer(1);
}

TEST(lines_arrive_while_the_call_runs)
{
    begin(long_call);
    receive_until("1: begins\n");
    log_until("half a ");
    check_got("1: begins\n");
    child_continue();
    CHECK_INT(0, end());
    check_got("1: begins\n1: half a line\ndone 1\n");
}

static void raw_bytes(void)
{
    char line[GP_LINE_BYTES_MAX + 10];

    memset(line, 'x', sizeof(line));
    gp_capture_begin_call(capture, 1);
    fwrite("a\0b\xff\n", 1, 5, stdout);
    fwrite(line, 1, sizeof(line), stdout);
    gp_capture_end(capture);
}

TEST(bytes_are_passed_on_unchanged_and_long_lines_in_parts)
{
    const void *record;
    gp_error err;

    begin(raw_bytes);
    waitpid(child, NULL, 0);
    child = 0;
    REQUIRE(gp_link_next(client, &record, &err) == GP_OK);
    CHECK_INT(4, ((const gp_answer *)record)->payload_bytes);
    CHECK(memcmp(((const gp_answer *)record)->payload, "a\0b\xff", 4) == 0);
    gp_link_drop(client);
    REQUIRE(gp_link_next(client, &record, &err) == GP_OK);
    CHECK_INT(GP_LINE_BYTES_MAX, ((const gp_answer *)record)->payload_bytes);
    gp_link_drop(client);
    receive();
    check_got("1: xxxxxxxxxx\n");
}

/* ---- a slow client ---- */

enum { STORM_LINES = 120000, STORM_BYTES = 61 };

static void storm(void)
{
    gp_capture_begin_call(capture, 1);
    for (int i = 0; i < STORM_LINES; i++)
        printf("line %6d of a task that prints more than the client reads\n", i);
    gp_capture_end(capture);
    answer(1);
    stop_here();
}

TEST(client_that_does_not_read_delays_no_call_and_loses_counted_lines)
{
    int64_t deadline = gp_now_ms() + WAIT_MS;
    uint64_t seen = 0;
    int last = -1;
    struct stat facts;

    begin(storm);
    /* The call ends although nothing is read: all bytes are in the log. */
    while (fstat(log_fd, &facts) == 0 && facts.st_size < (off_t)STORM_LINES * STORM_BYTES &&
           gp_now_ms() < deadline)
        gp_sleep_ms(1);
    while (seen + dropped < STORM_LINES && gp_now_ms() < deadline) {
        got_bytes = 0;
        got[0] = '\0';
        receive();
        for (const char *at = got; (at = strstr(at, "1: line ")) != NULL; at++) {
            int number = atoi(at + 8);

            CHECK(number > last); /* in order */
            last = number;
            seen++;
        }
        gp_sleep_ms(1);
    }
    CHECK_INT(STORM_LINES, seen + dropped);
    CHECK(dropped > 0);
    CHECK(seen > 40000); /* 4 MiB and half of the ring */
    child_continue();
    CHECK_INT(0, end());
    CHECK_INT((off_t)STORM_LINES * STORM_BYTES, facts.st_size);
}

/* ---- processes that end ---- */

static void torn_line(void)
{
    gp_capture_begin_call(capture, 5);
    printf("whole\n");
    fputs("torn", stderr);
}

static void aborts(void)
{
    torn_line();
    abort();
}

static void faults(void)
{
    torn_line();
    raise(SIGSEGV);
}

static void exits(void)
{
    torn_line();
    exit(3);
}

TEST(output_before_a_crash_or_exit_reaches_client_and_log)
{
    void (*const tasks[])(void) = { aborts, faults, exits };

    for (int i = 0; i < 3; i++) {
        begin(tasks[i]);
        int status = end();

        CHECK(i == 2 ? WIFEXITED(status) && WEXITSTATUS(status) == 3 : status != 0);
        check_got("5: whole\n5: torn\n");
        CHECK_CONTAINS(log_text(), "whole\ntorn");
        test_teardown();
    }
}

static void never_ends(void)
{
    torn_line();
    stop_here();
}

TEST(kill_in_the_middle_of_a_line_leaves_whole_lines)
{
    begin(never_ends);
    log_until("torn");
    receive_until("5: whole\n");
    kill(child, SIGKILL);
    CHECK(WIFSIGNALED(end()));
    check_got("5: whole\n");
}

static void forks(void)
{
    pid_t background = 0, crashes;

    gp_capture_begin_call(capture, 1);
    printf("before\n");
    crashes = fork();
    if (crashes == 0)
        abort(); /* the copy of the capture must not write to the ring */
    waitpid(crashes, NULL, 0);
    background = fork();
    if (background == 0)
        for (;;) /* keeps the pipe open and full */
            (void)!write(STDOUT_FILENO, "endless\n", 8);
    gp_capture_end(capture);
    answer(1);
    kill(background, SIGKILL);
    waitpid(background, NULL, 0);
}

TEST(child_processes_neither_write_to_the_link_nor_delay_the_call)
{
    begin(forks);
    receive_until("done 1");
    CHECK_INT(0, end());
    CHECK(strncmp(got, "1: before\n", 10) == 0);
}

static void *print_forever(void *context)
{
    static char line[3000];

    memset(line, 'x', sizeof(line) - 1);
    for (;;)
        puts(line);
    return context;
}

static void leaves_a_thread(void)
{
    pthread_t thread;

    alarm(60); /* ends the child if gp_capture_close() waits for the thread */
    gp_capture_begin_call(capture, 1);
    printf("first\n");
    if (pthread_create(&thread, NULL, print_forever, NULL) != 0)
        _exit(93);
    gp_capture_end(capture);
    answer(1);
}

TEST(thread_that_prints_delays_neither_the_call_nor_the_end)
{
    for (int i = 0; i < 20; i++) {
        begin(leaves_a_thread);
        CHECK_INT(0, end());
        CHECK_CONTAINS(got, "done 1\n");
        test_teardown();
    }
}
