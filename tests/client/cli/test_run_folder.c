/* test_run_folder.c: folders of trainings and programs: names, entries of the index, and files that
 * cannot be written. */
#include "client/cli/jobs/run_folder.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/jobs/job_self.h"
#include "client/cli/run/program_folder.h"
#include "client/runs/run_index.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "tests/fault/failing.h"
#include "tests/gp_test.h"

static char root[64];

/* Change to a new directory. */
static void root_make(void)
{
    snprintf(root, sizeof(root), "/tmp/gp-test-run-folder-XXXXXX");
    REQUIRE(mkdtemp(root) != NULL);
    REQUIRE(chdir(root) == 0);
}

static void root_remove(void)
{
    CHECK(chdir("/") == 0);
    gp_directory_remove(root);
}

/* Open a run folder whose index is in the current directory.
 *   path  --folder; NULL: choose a new one */
static gp_status open_folder(run_folder *out, const char *network, const char *path, gp_error *err)
{
    static char name[] = "gradpool", *words[] = { name, NULL };
    static gp_train_options options;
    const run_folder_request request = { .network = network,
                                         .data = "digits",
                                         .argc = 1,
                                         .argv = words,
                                         .options = &options,
                                         .folder = path,
                                         .state_dir = ".",
                                         .board = RUN_BOARD_NONE };

    *out = (run_folder){ .lock = -1, .end = { .fd = -1 } };
    run_folder_start(out);
    if (gp_train_options_from_json(&options, "{\"resume\": \"auto\"}", 18, err) != GP_OK)
        return GP_EINVAL;
    return run_folder_open(out, &request, err);
}

/* What the index has. */
typedef struct listing {
    int count;
    char folder[4096]; /* of the newest run */
} listing;

static bool visit(void *context, const run_entry *entry)
{
    listing *l = context;

    l->count++;
    snprintf(l->folder, sizeof(l->folder), "%s", entry->folder);
    return true;
}

static listing listing_read(void)
{
    listing l = { 0 };
    gp_error err;

    CHECK_STATUS(GP_OK, run_index_each(".", visit, &l, &err));
    return l;
}

/* A name is cut at 39 bytes, which is within the 20th character of this one. */
TEST(index_has_the_folder_of_a_long_name_in_any_language)
{
    run_folder folder;
    listing l;
    gp_error err;

    root_make();
    CHECK_STATUS(GP_OK, open_folder(&folder, "models/éééééééééééééééééééééééé.onnx", NULL, &err));
    run_folder_close(&folder, NULL, NULL);
    l = listing_read();
    CHECK_INT(1, l.count);
    CHECK(access(l.folder, F_OK) == 0);
    root_remove();
}

/* Create the folder of an attempt that was killed after step 5, while it wrote step 6. */
static void killed_make(const char *name)
{
    static const char *const files[][2] = {
        { "job.json", "{}" },
        { "metrics.jsonl", "{\"step\": 5}\n{\"step\": 6, \"lo" },
        { "workers.jsonl", "{\"worker\": 1, \"seconds\": 5, \"first_step\": 1, \"step\": 5, \"steps\": 5, "
                           "\"samples\": 50}\n" },
    };
    char path[100];
    gp_error err;

    REQUIRE(mkdir(name, 0700) == 0);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", name, files[i][0]);
        REQUIRE_OK(gp_file_write(path, files[i][1], strlen(files[i][1]), &err), err);
    }
}

/* Check that a file contains a text. */
static void check_file(const char *path, const char *part)
{
    uint8_t *text = NULL;
    size_t bytes;
    gp_error err;

    REQUIRE_OK(gp_file_read(&text, &bytes, path, 10000, &err), err);
    CHECK_CONTAINS((const char *)text, part);
    gp_free(text);
}

/* The file without the lines of the earlier attempt cannot get its name, as on a full disk. */
TEST(resume_that_cannot_trim_the_metrics_damages_no_line)
{
    run_folder folder;
    gp_error err;

    root_make();
    killed_make("run");
    REQUIRE_OK(open_folder(&folder, "lenet", "run", &err), err);
    failing_set("rename:1:ENOSPC:metrics.jsonl");
    run_folder_step(&folder, &(gp_train_step){ .step = 4, .worker = 1 }, 0);
    CHECK_INT(1, failing_struck());
    failing_set(NULL);
    run_folder_close(&folder, NULL, NULL);
    check_file("run/metrics.jsonl", "\"lo\n{\"step\": 4");
    check_file("run/workers.jsonl", "\"first_step\": 1, \"step\": 3, ");
    root_remove();
}

/* A mount point can neither be removed nor created again. */
TEST(empty_folder_is_used_as_it_is)
{
    run_folder folder;
    struct stat before, after;
    gp_error err;

    root_make();
    REQUIRE(mkdir("run", 0750) == 0 && mkdir("run/lost+found", 0700) == 0);
    REQUIRE(stat("run", &before) == 0);
    REQUIRE_OK(open_folder(&folder, "lenet", "run", &err), err);
    run_folder_close(&folder, NULL, NULL);
    REQUIRE(stat("run", &after) == 0);
    CHECK(before.st_ino == after.st_ino && before.st_mode == after.st_mode);
    REQUIRE(mkdir("other", 0700) == 0 && mkdir("other/files", 0700) == 0);
    CHECK_STATUS(GP_EINVAL, open_folder(&folder, "lenet", "other", &err));
    CHECK(access("other/files", F_OK) == 0);
    root_remove();
}

/* A process that is killed while it reads its data has written no facts.json. */
TEST(run_without_facts_is_indexed_once)
{
    run_folder folder;
    gp_error err;

    root_make();
    for (int attempt = 1; attempt <= 2; attempt++) {
        REQUIRE_OK(open_folder(&folder, "lenet", "run", &err), err);
        run_folder_close(&folder, NULL, NULL);
        CHECK_INT(1, listing_read().count);
    }
    root_remove();
}

/* Redirect standard error to a file, or back if `before` is not -1. */
static int errors_to(const char *path, int before)
{
    const int saved = dup(STDERR_FILENO);
    FILE *file;

    fflush(stderr);
    if (before >= 0) {
        CHECK(dup2(before, STDERR_FILENO) >= 0);
        close(before);
        close(saved);
        return -1;
    }
    file = fopen(path, "w");
    CHECK(file != NULL && dup2(fileno(file), STDERR_FILENO) >= 0);
    fclose(file);
    return saved;
}

TEST(log_that_a_full_disk_cut_is_reported)
{
    struct rlimit before, full;
    run_folder folder;
    gp_error err;
    int saved;

    root_make();
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    full = (struct rlimit){ .rlim_cur = 10, .rlim_max = before.rlim_max };
    signal(SIGXFSZ, SIG_IGN);
    REQUIRE_OK(open_folder(&folder, "lenet", "run", &err), err);
    CHECK(fputs("a line that does not fit\n", folder.log) >= 0);
    CHECK(setrlimit(RLIMIT_FSIZE, &full) == 0);
    CHECK(fflush(folder.log) != 0);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    saved = errors_to("errors", -1);
    run_folder_close(&folder, NULL, NULL);
    errors_to(NULL, saved);
    check_file("errors", "run/log is incomplete");
    root_remove();
}

/* A directory in the place of the link makes link() fail, as another file system does. */
TEST(job_reports_that_it_shows_no_curves)
{
    static char name[] = "gradpool", *words[] = { name, NULL };
    run_folder folder;
    gp_error err;
    int status;

    root_make();
    REQUIRE(mkdir("job", 0700) == 0 && mkdir("job/metrics.jsonl", 0700) == 0);
    const pid_t child = fork(); /* a process has one job at most */

    REQUIRE(child >= 0);
    if (child == 0) {
        setenv("GRADPOOL_JOB_DIR", "job", 1);
        errors_to("errors", -1);
        job_self_begin(1, words);
        if (open_folder(&folder, "lenet", "run", &err) != GP_OK)
            _exit(1);
        run_folder_facts(&folder, &(gp_train_info){ .workers = 1 });
        run_folder_close(&folder, NULL, NULL);
        _exit(0);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_INT(0, status);
    check_file("errors", "`logs` do not show the curves of this job: cannot link run/metrics.jsonl: ");
    root_remove();
}

TEST(result_of_a_program_is_neither_lost_silently_nor_that_of_an_earlier_run)
{
    const command_set_result result = { .first_code = 0 };
    program_folder folder;
    gp_error err;
    int saved;

    root_make();
    REQUIRE_OK(program_folder_open(&folder, "run", &err), err);
    saved = errors_to("errors", -1);
    failing_set("rename:1:ENOSPC:end.json");
    program_folder_close(&folder, &result);
    failing_set(NULL);
    errors_to(NULL, saved);
    check_file("errors", "the result of the run is lost: cannot rename ");
    REQUIRE(mkdir("run/end.json", 0700) == 0); /* unlink() fails */
    CHECK_STATUS(GP_EIO, program_folder_open(&folder, "run", &err));
    CHECK_CONTAINS(err.message, "end.json of an earlier run");
    program_folder_close(&folder, NULL);
    root_remove();
}
