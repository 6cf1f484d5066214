/* test_worker_lines.c: sums of the workers over intervals, after kills and resumes; run_trim(). */
#include "client/runs/worker_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/runs/run_reader.h"
#include "client/runs/run_trim.h"
#include "common/base/system/fence.h"
#include "common/base/system/file.h"
#include "tests/gp_test.h"

static char folder[64], path[100];

static void folder_make(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gp-test-workers-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/workers.jsonl", folder);
}

static void folder_remove(void)
{
    unlink(path);
    CHECK(rmdir(folder) == 0); /* nothing else is left */
}

/* Sums over all lines of one worker. */
typedef struct sums {
    int64_t lines, steps, samples, last;
    double forward;
} sums;

static sums sums_of(int64_t worker)
{
    run_lines *lines = run_lines_new(folder, "workers.jsonl");
    sums total = { 0 };
    const char *text;
    size_t bytes;

    while ((text = run_lines_next(lines, &bytes)) != NULL) {
        run_line line;

        CHECK(run_line_parse(&line, text, bytes));
        if (gp_json_integer(gp_json_member(line.json, "worker"), 0) == worker) {
            const int64_t first = gp_json_integer(gp_json_member(line.json, "first_step"), 0);

            CHECK_INT(total.last + 1, first);
            total.lines++;
            total.steps += gp_json_integer(gp_json_member(line.json, "steps"), 0);
            total.samples += gp_json_integer(gp_json_member(line.json, "samples"), 0);
            total.last = gp_json_integer(gp_json_member(line.json, "step"), 0);
            total.forward +=
                gp_json_number(gp_json_member(gp_json_member(line.json, "time"), "forward"), NAN);
        }
        run_line_deinit(&line);
    }
    run_lines_free(lines);
    return total;
}

static worker_lines *open_lines(void)
{
    worker_lines *lines;
    gp_error err;

    CHECK_STATUS(GP_OK, worker_lines_open(&lines, folder, &err));
    return lines;
}

/* Add steps of two workers that take 100 ms each. */
static void add(worker_lines *lines, uint64_t first, uint64_t last)
{
    for (uint64_t step = first; step <= last; step++)
        for (uint32_t worker = 1; worker <= 2; worker++)
            worker_lines_add(lines,
                             &(gp_train_step){ .worker = worker,
                                               .rank = worker - 1,
                                               .step = step,
                                               .samples = 10 * worker,
                                               .forward_ms = 0.5 },
                             (int64_t)step * 100);
}

TEST(lines_are_written_once_a_second_with_exact_sums)
{
    worker_lines *lines;
    int problem;

    folder_make();
    lines = open_lines();
    add(lines, 1, 100);
    CHECK_INT(9, sums_of(1).lines);
    CHECK_INT(0, worker_lines_close(lines, &problem));
    CHECK_INT(10, sums_of(1).lines);
    CHECK_INT(100, sums_of(1).steps);
    CHECK_INT(1000, sums_of(1).samples);
    CHECK_INT(2000, sums_of(2).samples);
    CHECK_NEAR(50.0, sums_of(2).forward, 1e-9);
    folder_remove();
}

TEST(open_intervals_survive_a_kill)
{
    worker_lines *lines;
    int problem;

    folder_make();
    lines = open_lines();
    add(lines, 1, 15); /* one line for each worker, and four steps in memory */
    CHECK_INT(11, sums_of(1).steps);
    /* A killed process never calls worker_lines_close(): open the folder again. */
    worker_lines *next = open_lines();

    CHECK_INT(15, sums_of(1).steps);
    CHECK_INT(300, sums_of(2).samples);
    worker_lines_close(next, &problem);
    CHECK_INT(15, sums_of(1).steps); /* not twice */
    worker_lines_close(lines, &problem);
    folder_remove();
}

TEST(a_process_killed_while_it_writes_a_line_leaves_the_sums_exact)
{
    static char state[1 << 20];
    char open_path[120];
    worker_lines *lines, *next;
    size_t bytes;
    FILE *file;
    int problem;

    folder_make();
    snprintf(open_path, sizeof(open_path), "%s/workers.open", folder);
    lines = open_lines();
    add(lines, 1, 21);
    file = fopen(open_path, "r");
    REQUIRE(file != NULL);
    bytes = fread(state, 1, sizeof(state), file);
    fclose(file);
    add(lines, 22, 22); /* the line of the steps 12 to 22 */
    CHECK_INT(22, sums_of(1).steps);
    file = fopen(open_path, "w"); /* as before the line */
    REQUIRE(file != NULL && fwrite(state, 1, bytes, file) == bytes && fclose(file) == 0);
    next = open_lines();
    CHECK_INT(22, sums_of(1).steps);
    CHECK_INT(440, sums_of(2).samples);
    add(next, 23, 25);
    REQUIRE(truncate(path, 40) == 0); /* within the first line */
    worker_lines_close(open_lines(), &problem);
    file = fopen(path, "r");
    REQUIRE(file != NULL && fgets(state, sizeof(state), file) != NULL);
    CHECK(strlen(state) == 41 && fgets(state, sizeof(state), file) != NULL); /* then a line of its own */
    CHECK_CONTAINS(state, "{\"worker\": 1,");
    CHECK_CONTAINS(state, "\"first_step\": 23, \"step\": 25,");
    fclose(file);
    worker_lines_close(next, &problem);
    worker_lines_close(lines, &problem);
    folder_remove();
}

TEST(resume_keeps_the_sums_up_to_the_step)
{
    worker_lines *lines;
    gp_error err;
    int problem;

    folder_make();
    lines = open_lines();
    add(lines, 1, 40);
    worker_lines_close(lines, &problem);
    lines = open_lines();
    CHECK_STATUS(GP_OK, worker_lines_resume(lines, 17, &err)); /* in the second interval, 12 to 22 */
    CHECK_INT(17, sums_of(1).steps);
    CHECK_INT(17, sums_of(2).last);
    CHECK_INT(340, sums_of(2).samples);
    CHECK_NEAR(8.5, sums_of(2).forward, 1e-3);
    add(lines, 18, 30);
    worker_lines_close(lines, &problem);
    CHECK_INT(30, sums_of(1).steps);
    CHECK_INT(300, sums_of(1).samples);
    folder_remove();
}

TEST(interval_that_a_resume_cuts_ends_earlier)
{
    worker_lines *lines;
    const char *text;
    size_t bytes;
    run_line line;
    gp_error err;
    int problem;

    folder_make();
    lines = open_lines();
    for (uint64_t step = 1; step <= 8; step++)
        worker_lines_add(
            lines,
            &(gp_train_step){
                .worker = 1, .step = step, .forward_ms = 60, .wait_ms = 40, .seconds = 0.1 * (double)step },
            (int64_t)step * 100);
    worker_lines_close(lines, &problem);
    lines = open_lines();
    CHECK_STATUS(GP_OK, worker_lines_resume(lines, 5, &err));
    worker_lines_close(lines, &problem);

    run_lines *read = run_lines_new(folder, "workers.jsonl");

    text = run_lines_next(read, &bytes);
    REQUIRE(text != NULL && run_line_parse(&line, text, bytes));
    CHECK_INT(5, gp_json_integer(gp_json_member(line.json, "step"), 0));
    CHECK_NEAR(0.5, gp_json_number(gp_json_member(line.json, "seconds"), 0), 1e-6);
    run_line_deinit(&line);
    run_lines_free(read);
    folder_remove();
}

static bool exit_after_rename;

int rename(const char *from, const char *to)
{
    const int result = renameat(AT_FDCWD, from, AT_FDCWD, to);

    if (exit_after_rename)
        _exit(0);
    return result;
}

/* The child exits after it has removed the lines of later steps, before it writes the shortened
 * ones. */
TEST(a_process_killed_while_it_resumes_leaves_the_sums_up_to_the_step)
{
    worker_lines *lines;
    gp_error err;
    int problem;

    folder_make();
    lines = open_lines();
    add(lines, 1, 40);
    worker_lines_close(lines, &problem);
    const pid_t child = fork();

    REQUIRE(child >= 0);
    if (child == 0) {
        exit_after_rename = true;
        worker_lines_resume(open_lines(), 17, NULL);
        _exit(1);
    }
    CHECK(waitpid(child, &problem, 0) == child && problem == 0);
    CHECK_INT(11, sums_of(1).steps);
    lines = open_lines();
    CHECK_STATUS(GP_OK, worker_lines_resume(lines, 17, &err));
    CHECK_INT(17, sums_of(1).steps);
    CHECK_INT(340, sums_of(2).samples);
    worker_lines_close(lines, &problem);
    folder_remove();
}

TEST(lines_have_memory_and_processor_time)
{
    static const int64_t memory[] = { 0, 5000, 6000, 6000 }, cpu[] = { 0, 200, 300, 40 };
    const char *text;
    size_t bytes;
    int problem, count = 0;
    gp_error err;

    folder_make();
    worker_lines *lines = open_lines();

    add(lines, 1, 11); /* one interval without a measurement */
    worker_lines_usage(lines, 1, 1000, 4000);
    add(lines, 12, 15);
    worker_lines_usage(lines, 1, 1200, 5000);
    worker_lines_usage(lines, 1, 1200, 5000); /* the same measurement at each step */
    add(lines, 16, 22);
    worker_lines_usage(lines, 1, 1500, 6000);
    add(lines, 23, 33);
    worker_lines_usage(lines, 1, 10, 6000); /* another process */
    add(lines, 34, 35);
    worker_lines_usage(lines, 1, 50, 6000);
    add(lines, 36, 37);
    worker_lines_close(lines, &problem);
    lines = open_lines();
    CHECK_STATUS(GP_OK, worker_lines_resume(lines, 100, &err)); /* lines are kept */
    worker_lines_close(lines, &problem);

    run_lines *read = run_lines_new(folder, "workers.jsonl");

    while ((text = run_lines_next(read, &bytes)) != NULL) {
        run_line line;

        REQUIRE(run_line_parse(&line, text, bytes));
        const bool first = gp_json_integer(gp_json_member(line.json, "worker"), 0) == 1;

        CHECK_INT(first ? memory[count] : 0, gp_json_integer(gp_json_member(line.json, "memory_bytes"), 0));
        CHECK_INT(first ? cpu[count] : 0, gp_json_integer(gp_json_member(line.json, "cpu_ms"), 0));
        count += first;
        run_line_deinit(&line);
    }
    run_lines_free(read);
    CHECK_INT(4, count);
    folder_remove();
}

TEST(lines_end_with_epochs)
{
    worker_lines *lines;
    int problem;

    folder_make();
    lines = open_lines();
    for (uint64_t step = 1; step <= 9; step++) /* epochs of 4 steps, the last with fewer samples */
        worker_lines_add(lines,
                         &(gp_train_step){ .worker = 1,
                                           .step = step,
                                           .epoch = (uint32_t)(step - 1) / 4 + 1,
                                           .samples = step % 4 == 0 ? 3 : 10 },
                         (int64_t)step);
    worker_lines_close(lines, &problem);
    CHECK_INT(3, sums_of(1).lines);
    lines = open_lines();
    gp_error err;

    CHECK_STATUS(GP_OK, worker_lines_resume(lines, 8, &err));
    worker_lines_close(lines, &problem);
    CHECK_INT(66, sums_of(1).samples);
    folder_remove();
}

TEST(line_that_a_full_disk_cut_does_not_damage_the_next_one)
{
    struct rlimit before, limit;
    int problem = 0, whole = 0;
    const char *text;
    size_t bytes;

    folder_make();
    worker_lines *lines = open_lines();

    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = (struct rlimit){ .rlim_cur = 100, .rlim_max = before.rlim_max };
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    add(lines, 1, 15); /* a second ends, and a part of its lines is written */
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    add(lines, 16, 25);
    CHECK_INT(2, worker_lines_close(lines, &problem));
    CHECK_INT(EFBIG, problem);

    run_lines *read = run_lines_new(folder, "workers.jsonl");

    while ((text = run_lines_next(read, &bytes)) != NULL) {
        run_line line;

        if (!run_line_parse(&line, text, bytes))
            continue;
        CHECK(gp_json_integer(gp_json_member(line.json, "first_step"), 0) > 10);
        whole++;
        run_line_deinit(&line);
    }
    run_lines_free(read);
    CHECK_INT(4, whole); /* two of each worker */
    folder_remove();
}

TEST(repeated_steps_are_counted_once)
{
    worker_lines *lines;
    int problem;

    folder_make();
    lines = open_lines();
    add(lines, 1, 20);
    add(lines, 15, 30); /* all workers were replaced */
    worker_lines_close(lines, &problem);
    CHECK_INT(30, sums_of(1).steps);
    CHECK_INT(600, sums_of(2).samples);
    folder_remove();
}

TEST(slowest_worker_is_named_with_the_phase)
{
    worker_lines *lines;
    char text[200];
    int problem;

    folder_make();
    lines = open_lines();
    for (uint64_t step = 1; step <= 30; step++)
        for (uint32_t worker = 1; worker <= 3; worker++) {
            if (step == 20 && worker == 1)
                CHECK(!worker_lines_slowest(lines, text, sizeof(text))); /* too few steps */
            worker_lines_add(lines,
                             &(gp_train_step){ .worker = worker,
                                               .step = step,
                                               .forward_ms = 4,
                                               .backward_ms = worker == 2 ? 11 : 6,
                                               .wait_ms = worker == 2 ? 0 : 100 },
                             (int64_t)step);
        }
    CHECK(worker_lines_slowest(lines, text, sizeof(text)));
    CHECK_TEXT("worker 2 was the slowest: 15.0 ms per step, others 10.0 ms; the difference is largest in "
               "backward",
               text);
    worker_lines_close(lines, &problem);
    lines = open_lines();
    add(lines, 31, 90); /* equal workers */
    CHECK(!worker_lines_slowest(lines, text, sizeof(text)));
    worker_lines_close(lines, &problem);
    folder_remove();
}

TEST(damaged_state_file_is_ignored)
{
    char open_path[100];
    worker_lines *lines;
    int problem;
    FILE *file;

    folder_make();
    snprintf(open_path, sizeof(open_path), "%s/workers.open", folder);
    file = fopen(open_path, "w");
    for (int i = 0; i < 500; i++)
        fputs("damaged ", file);
    fclose(file);
    lines = open_lines();
    add(lines, 1, 3);
    worker_lines_close(lines, &problem);
    CHECK_INT(3, sums_of(1).steps);
    CHECK_INT(0, sums_of(3).lines);
    folder_remove();
}

TEST(lines_that_cannot_be_trimmed_stay)
{
    struct rlimit old, none;
    worker_lines *lines;
    gp_error err;
    int problem = 0;

    folder_make();
    lines = open_lines();
    add(lines, 1, 12);
    worker_lines_close(lines, &problem);
    lines = open_lines();
    getrlimit(RLIMIT_NOFILE, &old);
    none = (struct rlimit){ .rlim_cur = 3, .rlim_max = old.rlim_max };
    setrlimit(RLIMIT_NOFILE, &none);
    CHECK_STATUS(GP_EIO, worker_lines_resume(lines, 6, &err));
    setrlimit(RLIMIT_NOFILE, &old);
    add(lines, 13, 30);
    CHECK_INT(0, worker_lines_close(lines, &problem));
    CHECK_INT(30, sums_of(1).steps);
    folder_remove();
}

TEST(outdated_attempt_does_not_trim)
{
    char newest[sizeof(folder) + 16], fence[sizeof(newest) + 16];
    gp_error err;

    folder_make();
    snprintf(newest, sizeof(newest), "%s/newest", folder);
    snprintf(fence, sizeof(fence), "1:%s", newest);
    REQUIRE_OK(gp_file_write(path, "{\"step\": 1}\n{\"step\": 2}\n", 24, &err), err);
    REQUIRE_OK(gp_file_write(newest, "2\n", 2, &err), err);
    setenv(GP_FENCE_VARIABLE, fence, 1);
    CHECK_STATUS(GP_ESTALE, run_trim(folder, "workers.jsonl", 1, 1, NULL, &err));
    unsetenv(GP_FENCE_VARIABLE);
    unlink(newest);
    folder_remove();
}

TEST(unreadable_file_is_not_trimmed)
{
    gp_error err;

    folder_make();
    CHECK(mkdir(path, 0700) == 0); /* read() fails with EISDIR */
    CHECK_STATUS(GP_EIO, run_trim(folder, "workers.jsonl", 3, 2, NULL, &err));
    CHECK_CONTAINS(err.message, "cannot read");
    CHECK(rmdir(path) == 0);
    folder_remove();
}

TEST(trimming_keeps_the_steps_before_the_resume)
{
    static const char text[] = "{\"step\": 1, \"loss\": 2}\n"
                               "{\"step\": 2, \"loss\": 2}\n"
                               "{\"step\": 2, \"validation_loss\": 1}\n"
                               "{\"step\": 2, \"workers_before\": 1}\n"
                               "no JSON\n"
                               "{\"step\": 3, \"loss\": 2}\n"
                               "{\"step\": 3, \"validation_loss\": 1}\n"
                               "{\"step\": 12, \"loss\": 2}\n"
                               "{\"step\": 2, \"lo";
    char read[sizeof(text)] = "";
    uint64_t last;
    gp_error err;
    FILE *file;

    folder_make();
    CHECK_STATUS(GP_OK, run_trim(folder, "workers.jsonl", 3, 2, &last, &err)); /* no file */
    CHECK_INT(0, last);
    file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    CHECK_STATUS(GP_OK, run_trim(folder, "workers.jsonl", 3, 2, &last, &err));
    CHECK_INT(3, last);
    file = fopen(path, "r");
    CHECK(fread(read, 1, sizeof(read) - 1, file) > 0);
    fclose(file);
    CHECK_TEXT("{\"step\": 1, \"loss\": 2}\n"
               "{\"step\": 2, \"loss\": 2}\n"
               "{\"step\": 2, \"validation_loss\": 1}\n"
               "{\"step\": 2, \"workers_before\": 1}\n"
               "{\"step\": 3, \"loss\": 2}\n",
               read);
    folder_remove();
}
