/* test_run_index.c: the index of runs with incomplete lines, and with many processes, also on a
 * simulated NFS. */
#include "client/runs/run_index.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"

#include "tests/gp_test.h"

enum { WRITERS = 8, RUNS = 50 };

static char folder[64], path[100];

static void folder_make(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gp-test-index-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/runs.jsonl", folder);
}

static void folder_remove(void)
{
    unlink(path);
    rmdir(folder);
}

/* Runs as the visitor has seen them. */
typedef struct seen {
    uint32_t count, stop_after; /* stop_after 0: visit all */
    uint64_t last;
    char folder[5000];
    uint32_t of_writer[WRITERS];
} seen;

static bool visit(void *context, const run_entry *entry)
{
    seen *s = context;
    unsigned writer;

    CHECK(entry->number > s->last);
    s->last = entry->number;
    s->count++;
    snprintf(s->folder, sizeof(s->folder), "%s", entry->folder);
    if (sscanf(entry->folder, "/runs/%u/", &writer) == 1 && writer < WRITERS)
        s->of_writer[writer]++;
    return s->count != s->stop_after;
}

static seen read_index(uint32_t stop_after)
{
    static seen s;
    gp_error err;

    s = (seen){ .stop_after = stop_after };
    CHECK_STATUS(GP_OK, run_index_each(folder, visit, &s, &err));
    return s;
}

TEST(runs_are_numbered_in_the_order_of_their_starts)
{
    gp_error err;

    folder_make();
    CHECK_INT(0, read_index(0).count);
    CHECK_STATUS(GP_OK, run_index_append(folder, "/runs/a", "2026", &err));
    CHECK_STATUS(GP_OK, run_index_append(folder, "/runs/with \"quotes\"\n", "2026", &err));
    CHECK_INT(2, read_index(0).count);
    CHECK_TEXT("/runs/with \"quotes\"\n", read_index(0).folder);
    CHECK_TEXT("/runs/a", read_index(1).folder);
    folder_remove();
}

TEST(unreadable_index_is_an_error)
{
    static seen s;
    gp_error err;

    folder_make();
    REQUIRE(mkdir(path, 0700) == 0); /* read() fails with EISDIR */
    CHECK_STATUS(GP_EIO, run_index_each(folder, visit, &s, &err));
    CHECK_CONTAINS(err.message, "cannot read the index of runs");
    REQUIRE(rmdir(path) == 0);
    folder_remove();
}

TEST(incomplete_line_is_skipped_and_keeps_its_number)
{
    gp_error err;
    FILE *file;

    folder_make();
    CHECK_STATUS(GP_OK, run_index_append(folder, "/runs/a", "2026", &err));
    file = fopen(path, "a");
    fputs("{\"folder\": \"/runs/tor", file);
    fclose(file);
    CHECK_STATUS(GP_OK, run_index_append(folder, "/runs/b", "2026", &err));

    const seen s = read_index(0);

    CHECK_INT(2, s.count);
    CHECK_INT(3, s.last);
    CHECK_TEXT("/runs/b", s.folder);
    folder_remove();
}

TEST(empty_line_has_no_number)
{
    gp_error err;
    FILE *file;

    folder_make();
    CHECK_STATUS(GP_OK, run_index_append(folder, "/runs/a", "2026", &err));
    file = fopen(path, "a");
    fputs("\n", file);
    fclose(file);
    CHECK_STATUS(GP_OK, run_index_append(folder, "/runs/b", "2026", &err));
    CHECK_INT(2, read_index(0).last);
    CHECK_TEXT("/runs/b", read_index(0).folder);
    folder_remove();
}

/* ---- NFS ---- */

static bool nfs;          /* append as an NFS client does */
static bool locks = true; /* flock() works */

int flock(int fd, int operation)
{
    if (!locks) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

/* Write at the offset that was the end of the file a short time ago: an NFS client does not know
 * what other hosts append meanwhile. */
ssize_t write(int fd, const void *data, size_t bytes)
{
    const int flags = fcntl(fd, F_GETFL);

    if (nfs && (flags & O_APPEND) != 0) {
        const off_t end = lseek(fd, 0, SEEK_END);

        gp_sleep_ms(1);
        fcntl(fd, F_SETFL, flags & ~O_APPEND);
        return pwrite(fd, data, bytes, end);
    }
    return (ssize_t)syscall(SYS_write, fd, data, bytes);
}

/* ---- many processes ---- */

/* Let processes append runs, and return how many lines the index then has. */
static uint64_t append_at_the_same_time(void)
{
    pid_t writers[WRITERS];
    int status;

    for (unsigned writer = 0; writer < WRITERS; writer++) {
        writers[writer] = fork();
        if (writers[writer] != 0)
            continue;
        gp_error err;
        bool failed = false;

        for (unsigned run = 0; run < RUNS; run++) {
            char name[64];

            snprintf(name, sizeof(name), "/runs/%u/%u", writer, run);
            failed |= run_index_append(folder, name, "2026", &err) != GP_OK;
        }
        _exit(failed);
    }
    for (unsigned writer = 0; writer < WRITERS; writer++) {
        CHECK(waitpid(writers[writer], &status, 0) == writers[writer]);
        CHECK_INT(0, status);
    }

    return read_index(0).last;
}

static void check_all_runs(void)
{
    const seen s = read_index(0);

    CHECK_INT(WRITERS * RUNS, s.last);
    for (unsigned writer = 0; writer < WRITERS; writer++)
        CHECK_INT(RUNS, s.of_writer[writer]);
}

TEST(processes_append_at_the_same_time)
{
    folder_make();
    locks = true;
    append_at_the_same_time();
    check_all_runs();
    folder_remove();
}

TEST(processes_without_locks_append_at_the_same_time)
{
    folder_make();
    locks = false;
    append_at_the_same_time();
    check_all_runs();
    folder_remove();
}

TEST(processes_append_to_an_index_on_nfs)
{
    nfs = true;
    folder_make();
    locks = true;
    append_at_the_same_time();
    check_all_runs();
    folder_remove();
    /* the simulation loses lines if the writers have no lock */
    folder_make();
    locks = false;
    CHECK(append_at_the_same_time() < (uint64_t)WRITERS * RUNS);
    folder_remove();
    nfs = false;
}

TEST(path_that_is_too_long_is_refused)
{
    static char name[2 * RUN_INDEX_LINE_MAX];
    gp_error err;

    folder_make();
    memset(name, 'x', sizeof(name) - 1);
    name[0] = '/';
    CHECK_STATUS(GP_ELIMIT, run_index_append(folder, name, "2026", &err));
    CHECK_INT(0, read_index(0).count);
    CHECK_STATUS(GP_EIO, run_index_append("/tmp/gp-test-missing", "/runs/a", "2026", &err));
    folder_remove();
}

/* JSON cannot hold the path, so the index would have another folder. */
TEST(path_that_is_not_utf8_is_refused)
{
    gp_error err;

    folder_make();
    CHECK_STATUS(GP_EINVAL, run_index_append(folder, "/runs/caf\xe9", "2026", &err));
    CHECK_CONTAINS(err.message, "is not valid UTF-8");
    CHECK_INT(0, read_index(0).count);
    folder_remove();
}

TEST(run_after_a_million_others_is_listed)
{
    enum { OTHERS = 1000000 };
    gp_error err;
    FILE *file;

    folder_make();
    file = fopen(path, "w");
    for (int i = 0; i < OTHERS; i++) /* malformed lines have a number, too */
        fputs("-\n", file);
    fclose(file);
    CHECK_STATUS(GP_OK, run_index_append(folder, "/runs/newest", "2026", &err));
    CHECK_INT(OTHERS + 1, read_index(0).last);
    CHECK_TEXT("/runs/newest", read_index(0).folder);
    CHECK_INT(0, truncate(path, (off_t)RUN_INDEX_BYTES_MAX + 1));
    CHECK_STATUS(GP_ELIMIT, run_index_append(folder, "/runs/too-many", "2026", &err));
    CHECK_CONTAINS(err.message, "runs.jsonl is larger than 256 MiB; rename it to begin a new index");
    folder_remove();
}
