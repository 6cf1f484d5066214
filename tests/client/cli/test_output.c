/* test_output.c: ordered job output and the job log. Uses no pool and no processes. */
#include "client/cli/run/output.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/cli/run/joblog.h"
#include "common/base/memory/alloc.h"
#include "tests/gp_test.h"

enum { TEXT_BYTES = 8 << 20 };

static char text[TEXT_BYTES];

static const char *written(int fd)
{
    ssize_t got = pread(fd, text, sizeof(text) - 1, 0);

    text[got > 0 ? got : 0] = '\0';
    return text;
}

typedef struct sink {
    cli_output *output;
    int out, err;
} sink;

static sink sink_open(output_options options)
{
    sink s = { .out = memfd_create("out", MFD_CLOEXEC), .err = memfd_create("err", MFD_CLOEXEC) };
    gp_error err;

    options.out = s.out;
    options.err = s.err;
    if (output_new(&s.output, &options, &err) != GP_OK)
        abort();
    return s;
}

static void sink_close(sink *s)
{
    output_free(s->output);
    close(s->out);
    close(s->err);
}

static output_job *begin(sink *s, const char *tag)
{
    output_job *job = NULL;
    gp_error err;

    if (output_begin(&job, s->output, tag, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    return job;
}

/* Write to the job's standard output and standard error, as a command does. */
static void say(output_job *job, const char *out_text, const char *err_text)
{
    int out, err_fd;
    gp_error err;

    if (output_open(job, &out, &err_fd, &err) != GP_OK) {
        GP_TEST_FAIL("%s", err.message);
        return;
    }
    CHECK_INT(strlen(out_text), write(out, out_text, strlen(out_text)));
    CHECK_INT(strlen(err_text), write(err_fd, err_text, strlen(err_text)));
    close(out);
    close(err_fd);
}

#define END(job) CHECK_STATUS(GP_OK, output_end(job, NULL))

TEST(ordered_output_follows_start_order_standard_output_first)
{
    sink s = sink_open((output_options){ .kind = OUTPUT_WHOLE, .ordered = true });
    output_job *jobs[4];

    for (int i = 0; i < 4; i++)
        jobs[i] = begin(&s, "");
    say(jobs[2], "three\n", "bad three\n");
    END(jobs[2]);
    say(jobs[1], "two", "");
    END(jobs[1]);
    CHECK_TEXT("", written(s.out));
    say(jobs[0], "one\n", "");
    END(jobs[0]);
    CHECK_TEXT("one\ntwothree\n", written(s.out));
    CHECK_TEXT("bad three\n", written(s.err));
    END(jobs[3]); /* a job that never ran */
    CHECK_TEXT("one\ntwothree\n", written(s.out));
    sink_close(&s);
}

TEST(without_an_order_jobs_are_written_as_they_end)
{
    sink s = sink_open((output_options){ .kind = OUTPUT_WHOLE });
    output_job *first = begin(&s, "a\t"), *second = begin(&s, "b\t"), *third = begin(&s, "c\t");

    say(second, "x\n\ny", "");
    END(second);
    CHECK_TEXT("b\tx\nb\t\nb\ty", written(s.out));
    say(third, "z\n", "");
    END(third);
    say(first, "w\n", "");
    END(first);
    CHECK_TEXT("b\tx\nb\t\nb\tyc\tz\na\tw\n", written(s.out)); /* as GNU parallel prints it */
    sink_close(&s);
}

TEST(retry_discards_output_of_the_failed_attempt_but_keeps_reports)
{
    sink s = sink_open((output_options){ .kind = OUTPUT_WHOLE, .ordered = true });
    output_job *job = begin(&s, "");

    say(job, "first attempt\n", "bad\n");
    CHECK_STATUS(GP_OK, output_drop(job, NULL));
    say(job, "second\n", "worse\n");
    output_print(job, "ended by us");
    END(job);
    CHECK_TEXT("second\n", written(s.out));
    CHECK_TEXT("worse\nended by us\n", written(s.err));
    job = begin(&s, "");
    output_print(job, "never started");
    END(job);
    CHECK_TEXT("worse\nended by us\nnever started\n", written(s.err));
    sink_close(&s);
}

TEST(large_output_is_buffered_in_a_bounded_number_of_files)
{
    enum { BYTES = OUTPUT_SMALL_BYTES + 1 };
    static char large[BYTES + 1];
    static output_job *jobs[OUTPUT_FILES_MAX + 1];
    sink s = sink_open((output_options){ .kind = OUTPUT_WHOLE, .ordered = true });
    uint32_t count = 0;

    memset(large, 'x', BYTES);
    jobs[count++] = begin(&s, "");
    while (output_room(s.output) && count <= OUTPUT_FILES_MAX) {
        jobs[count] = begin(&s, "");
        say(jobs[count], large, "");
        END(jobs[count++]);
    }
    CHECK_INT(OUTPUT_FILES_MAX + 1, count);
    CHECK(!output_room(s.output));
    say(jobs[0], "first\n", "");
    END(jobs[0]);
    CHECK(output_room(s.output));
    CHECK_INT(6 + (long long)OUTPUT_FILES_MAX * BYTES, lseek(s.out, 0, SEEK_END));
    CHECK_CONTAINS(written(s.out), "first\nxxxx");
    sink_close(&s);
}

TEST(number_of_buffered_jobs_is_bounded)
{
    sink s = sink_open((output_options){ .kind = OUTPUT_WHOLE, .ordered = true });
    output_job *first = begin(&s, "");
    uint32_t count = 1;

    for (; output_room(s.output) && count < 2 * OUTPUT_AHEAD_MAX; count++)
        END(begin(&s, ""));
    CHECK_INT(OUTPUT_AHEAD_MAX, count);
    END(first);
    CHECK(output_room(s.output));
    sink_close(&s);
}

/* Read the pending output once, as the event loop in a command run does. */
static void turn(sink *s)
{
    struct pollfd fds[16];
    nfds_t count = output_fds(s->output, fds, 16);

    CHECK(count <= 16);
    poll(fds, count, 0);
    CHECK_STATUS(GP_OK, output_read(s->output, fds, count, NULL));
}

TEST(lines_are_written_whole_and_tagged_on_arrival)
{
    sink s = sink_open((output_options){ .kind = OUTPUT_LINES });
    output_job *a = begin(&s, "a: "), *b = begin(&s, "b: ");
    int outs[2], errs[2];
    gp_error err;

    REQUIRE_OK(output_open(a, &outs[0], &errs[0], &err), err);
    REQUIRE_OK(output_open(b, &outs[1], &errs[1], &err), err);
    CHECK_INT(4, output_fds(s.output, NULL, 0));
    CHECK_INT(9, write(outs[0], "one\ntwo\nt", 9));
    turn(&s);
    CHECK_TEXT("a: one\na: two\n", written(s.out));
    CHECK_INT(4, write(outs[1], "mid\n", 4));
    CHECK_INT(5, write(errs[1], "oops\n", 5));
    turn(&s);
    CHECK_INT(5, write(outs[0], "hree\n", 5));
    turn(&s);
    CHECK_TEXT("a: one\na: two\nb: mid\na: three\n", written(s.out));
    CHECK_TEXT("b: oops\n", written(s.err));

    /* The last line is unterminated, and a daemon started by the job keeps the pipe open. */
    CHECK_INT(4, write(outs[0], "last", 4));
    close(errs[0]);
    turn(&s);
    CHECK_INT(3, output_fds(s.output, NULL, 0));
    END(a);
    CHECK_TEXT("a: one\na: two\nb: mid\na: three\na: last\n", written(s.out));
    CHECK_INT(2, output_fds(s.output, NULL, 0));
    END(b);
    close(outs[0]);
    close(outs[1]);
    close(errs[1]);
    sink_close(&s);
}

TEST(overlong_line_is_written_in_pieces_with_one_tag)
{
    static char piece[60 << 10];
    sink s = sink_open((output_options){ .kind = OUTPUT_LINES });
    output_job *job = begin(&s, "t: ");
    int out, err_fd;
    size_t sent = 0, tags = 0;
    gp_error err;

    memset(piece, 'x', sizeof(piece));
    REQUIRE_OK(output_open(job, &out, &err_fd, &err), err);
    while (sent < 3 * (size_t)OUTPUT_LINE_BYTES_MAX) {
        sent += (size_t)write(out, piece, sizeof(piece));
        turn(&s);
    }
    CHECK(lseek(s.out, 0, SEEK_END) > 2 * OUTPUT_LINE_BYTES_MAX);
    END(job);
    CHECK_INT(sent + 4, lseek(s.out, 0, SEEK_END));
    written(s.out);
    for (const char *at = text; (at = strstr(at, "t: ")) != NULL; at++)
        tags++;
    CHECK_INT(1, tags);
    CHECK_INT('\n', text[sent + 3]);
    close(out);
    close(err_fd);
    sink_close(&s);
}

static gp_status shout(void *context, const void *subject, const gp_buffer *out, const gp_buffer *err,
                       gp_buffer *report, gp_error *error)
{
    return gp_buffer_printf(report, error, "%s%s: %s|%s\n", (const char *)context,
                            subject == NULL ? "none" : (const char *)subject, gp_buffer_text(out),
                            gp_buffer_text(err));
}

TEST(report_replaces_the_output_of_a_job)
{
    char context[] = "> ";
    sink s = sink_open((output_options){ .kind = OUTPUT_WHOLE,
                                         .ordered = true,
                                         .report = shout,
                                         .report_context = context,
                                         .subject_free = gp_free });
    output_job *first = begin(&s, "ignored"), *second = begin(&s, "");

    say(second, "two", "bad");
    output_subject(second, gp_strdup("facts"));
    output_subject(second, gp_strdup("of two"));
    END(second);
    say(first, "one", "");
    output_subject(first, gp_strdup("of one"));
    END(first);
    CHECK_TEXT("> of one: one|\n> of two: two|bad\n", written(s.out));
    CHECK_TEXT("", written(s.err));
    sink_close(&s);
}

TEST(closed_sink_is_an_error)
{
    int pipes[2];
    cli_output *output;
    output_job *job;
    gp_error err;

    REQUIRE(pipe2(pipes, O_CLOEXEC) == 0);
    close(pipes[0]);
    signal(SIGPIPE, SIG_IGN);
    REQUIRE_OK(
        output_new(&output, &(output_options){ .out = pipes[1], .err = pipes[1], .ordered = true }, &err),
        err);
    REQUIRE_OK(output_begin(&job, output, "", &err), err);
    say(job, "x", "");
    CHECK_STATUS(GP_EIO, output_end(job, &err));
    CHECK_CONTAINS(err.message, "cannot write to standard output");
    output_free(output);
    close(pipes[1]);
}

TEST(second_interrupt_gives_up_a_full_nonblocking_pipe)
{
    static const volatile sig_atomic_t stop = 2;
    int pipes[2];
    cli_output *output;
    output_job *job;
    gp_error err;

    REQUIRE(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0);
    while (write(pipes[1], text, 4096) > 0)
        ;
    REQUIRE_OK(
        output_new(&output, &(output_options){ .out = pipes[1], .err = pipes[1], .stop = &stop }, &err), err);
    REQUIRE_OK(output_begin(&job, output, "", &err), err);
    say(job, "x", "");
    CHECK_STATUS(GP_EIO, output_end(job, &err));
    output_free(output);
    close(pipes[0]);
    close(pipes[1]);
}

TEST(missing_temporary_folder_is_named_in_the_error)
{
    sink s = sink_open((output_options){ .kind = OUTPUT_WHOLE });
    output_job *job = begin(&s, "");
    int out, err_fd;
    gp_error err;

    setenv("TMPDIR", "/nonexistent", 1);
    CHECK_STATUS(GP_EIO, output_open(job, &out, &err_fd, &err));
    CHECK_CONTAINS(err.message, "TMPDIR");
    unsetenv("TMPDIR");
    END(job);
    sink_close(&s);
}

static gp_status output_try(cli_output **output)
{
    output_job *job;
    gp_status status = output_new(output, &(output_options){ .ordered = true }, NULL);

    if (status != GP_OK)
        return status;
    status = output_begin(&job, *output, "tag", NULL);
    if (status != GP_OK)
        output_free(*output);
    return status;
}

TEST(failed_allocations_leak_no_output)
{
    cli_output *output = NULL;

    CHECK_EVERY_ALLOCATION(output_try(&output), output_free(output));
}

/* ---- the job log ---- */

static char path[40];

static void log_make(const char *content)
{
    strcpy(path, "/tmp/gpt-XXXXXX");
    int fd = mkstemp(path);

    CHECK_INT(strlen(content), write(fd, content, strlen(content)));
    close(fd);
}

#define HEADING "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"

TEST(job_logs_of_gradpool_and_gnu_parallel_are_read)
{
    cli_joblog *log;
    gp_error err;

    /* Lines from GNU parallel: a success, a failure, a signal; then damaged lines. */
    log_make(HEADING "1\t:\t1795255039.762\t     0.000\t0\t0\t0\t0\texit 0\n"
                     "3\t:\t1795255039.762\t     0.000\t0\t0\t5\t0\texit 5\n"
                     "900\t:\t1795255039.762\t     0.000\t0\t0\t0\t9\tkill\n"
                     "x\ty\n\n7\t:\t1\t2\t0\t0\tq\t0\tz\n0\t:\t1\t2\t0\t0\t0\t0\tz\n5\t:\t17");
    REQUIRE_OK(joblog_open(&log, path, JOBLOG_RESUME, &err), err);
    CHECK(joblog_done(log, 1) && joblog_done(log, 3) && joblog_done(log, 900));
    CHECK(!joblog_done(log, 0) && !joblog_done(log, 2) && !joblog_done(log, 5) && !joblog_done(log, 7));
    CHECK(!joblog_done(log, UINT64_MAX) && !joblog_done(NULL, 1));
    REQUIRE_OK(
        joblog_write(
            log, &(joblog_line){ .job = 5, .worker = 2, .start = 1.5, .seconds = 2.25, .command = "a\tb\nc" },
            &err),
        err);
    CHECK_STATUS(GP_OK, joblog_close(log, &err));
    REQUIRE_OK(joblog_open(&log, path, JOBLOG_RESUME_FAILED, &err), err);
    CHECK(joblog_done(log, 1) && !joblog_done(log, 3) && !joblog_done(log, 900) && joblog_done(log, 5));
    joblog_close(log, NULL);
    FILE *file = fopen(path, "r");

    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    CHECK_CONTAINS(text, "\n5\t:\t17\n5\tworker 2\t1.500\t     2.250\t0\t0\t0\t0\ta b c\n");
    unlink(path);
}

TEST(job_log_that_is_only_read_is_neither_changed_nor_created)
{
    static const char line[] = HEADING "2\t:\t1\t2\t0\t0\t0\t0\tz\n3\t:\t17";
    static const joblog_resume resumes[] = { JOBLOG_FRESH, JOBLOG_RESUME, JOBLOG_RESUME_FAILED };
    cli_joblog *log;
    gp_error err;

    log_make(line);
    for (size_t i = 0; i < sizeof(resumes) / sizeof(resumes[0]); i++) {
        REQUIRE_OK(joblog_read(&log, path, resumes[i], &err), err);
        CHECK(joblog_done(log, 2) == (resumes[i] != JOBLOG_FRESH));
        CHECK_STATUS(GP_OK, joblog_close(log, &err));
    }
    FILE *file = fopen(path, "r");

    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    CHECK_TEXT(line, text);
    unlink(path);
    REQUIRE_OK(joblog_read(&log, path, JOBLOG_RESUME, &err), err);
    CHECK_STATUS(GP_OK, joblog_close(log, &err));
    CHECK(access(path, F_OK) != 0);
}

TEST(file_of_another_format_is_refused_and_unchanged)
{
    cli_joblog *log = NULL;
    gp_error err;

    log_make("my thesis\n");
    CHECK_STATUS(GP_EINVAL, joblog_open(&log, path, JOBLOG_RESUME, &err));
    CHECK_CONTAINS(err.message, "is not a job log");
    unlink(path);
    log_make(HEADING "99999999999\t:\t1\t2\t0\t0\t0\t0\tz\n");
    CHECK_STATUS(GP_ELIMIT, joblog_open(&log, path, JOBLOG_RESUME, &err));
    unlink(path);
    CHECK_STATUS(GP_EIO, joblog_open(&log, "/nonexistent/log", JOBLOG_FRESH, &err));
    CHECK_CONTAINS(err.message, "/nonexistent/log");
    REQUIRE_OK(joblog_open(&log, path, JOBLOG_RESUME, &err), err); /* the file does not exist */
    CHECK(!joblog_done(log, 1));
    joblog_close(log, NULL);
    unlink(path);
}
