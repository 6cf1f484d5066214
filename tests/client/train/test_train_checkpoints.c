/* test_train_checkpoints.c: choose the checkpoint to resume, and refuse directories. Uses no
 * pool. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/train/train_run.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/model/checkpoint_record.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"
#include "worker/train/checkpoint.h"

static char directory[64];
static gp_training *training;
static gp_error err;

static bool readdir_fails;

/* Replace the function of the C library. */
struct dirent *readdir(DIR *folder)
{
    __typeof__(&readdir) next = (__typeof__(&readdir))(uintptr_t)dlsym(RTLD_NEXT, "readdir64");

    if (!readdir_fails)
        return next(folder);
    errno = EIO;
    return NULL;
}

static void begin(void)
{
    strcpy(directory, "/tmp/gp-runs-XXXXXX");
    if (leftovers_make(directory) == NULL)
        abort();
}

/* Free the previous training and prepare one for that network with the options ("name=value",
 * NULL-terminated). */
static gp_status prepare_network(const char *network, const char *const *options)
{
    gp_train_request request = { .network = network, .data = "digits:60", .options = options };

    gp_training_free(training);
    training = NULL;
    err = (gp_error){ 0 };
    gp_status status = gp_training_new(&training, &request, &err);

    if (status == GP_OK)
        training->run->request = NULL; /* points to a local variable */
    return status;
}

static const char *path_option(void)
{
    static char text[100];

    snprintf(text, sizeof(text), "checkpoint-path=%s", directory);
    return text;
}

#define PREPARE(...) prepare_network("lenet", (const char *const[]){ path_option(), __VA_ARGS__ NULL })
#define RUN_ID       (training->run->options.run_id)

static const char *resume_option(uint64_t step)
{
    static char text[120];

    snprintf(text, sizeof(text), "resume=%s/%llu.json", directory, (unsigned long long)step);
    return text;
}

/* Write a checkpoint for the prepared training under that run id, as a worker does. */
static void write_step(uint64_t step, const char *run)
{
    size_t count = training->graph->blob_count;
    gp_train_options options = training->run->options;
    gp_checkpoint_frame frame = { .graph = training->graph, .options = &options, .world = 1 };
    gp_checkpoint state = { .progress = { .step = step, .epoch = 1 },
                            .parameters = gp_calloc(count, sizeof(float)) };

    snprintf(options.run_id, sizeof(options.run_id), "%s", run);
    REQUIRE_OK(gp_checkpoint_write(directory, &frame, &state, &err), err);
    gp_free(state.parameters);
}

static uint64_t newest_up_to(uint64_t last)
{
    uint64_t step;

    CHECK_STATUS(GP_OK, gp_run_newest_checkpoint(&step, training->run, last, &err));
    return step;
}

static void end(void)
{
    gp_training_free(training);
    training = NULL;
    leftovers_clear(directory);
}

TEST(resume_auto_starts_in_an_empty_directory_and_continues_the_one_run_there)
{
    char first[40];

    begin();
    REQUIRE_OK(PREPARE("resume=auto", ), err);
    CHECK_TEXT("", training->run->options.resume);
    CHECK_INT(16, strlen(RUN_ID));
    strcpy(first, RUN_ID);
    write_step(4, first);
    write_step(8, first);
    REQUIRE_OK(PREPARE("resume=auto", ), err);
    CHECK_TEXT(directory, training->run->options.resume);
    CHECK_TEXT(first, RUN_ID);
    REQUIRE_OK(prepare_network("lenet", (const char *const[]){ NULL }), err);
    CHECK(strcmp(first, RUN_ID) != 0); /* each new run has a new id */
    CHECK_STATUS(GP_EINVAL, prepare_network("lenet", (const char *const[]){ "resume=auto", NULL }));
    CHECK_CONTAINS(err.message, "needs checkpoint-path");
    end();
}

TEST(unreadable_directory_does_not_start_a_new_run)
{
    char loop[80], option[120];

    begin();
    snprintf(loop, sizeof(loop), "%s/loop", directory);
    REQUIRE(symlink("loop", loop) == 0); /* ELOOP, also for root */
    snprintf(option, sizeof(option), "checkpoint-path=%s", loop);
    CHECK_STATUS(GP_EIO, prepare_network("lenet", (const char *const[]){ option, "resume=auto", NULL }));
    CHECK_CONTAINS(err.message, "cannot list the checkpoints in ");
    readdir_fails = true;
    gp_status status = PREPARE("resume=auto", );

    readdir_fails = false;
    CHECK_STATUS(GP_EIO, status);
    CHECK_CONTAINS(err.message, "cannot list the checkpoints in ");
    end();
}

TEST(a_used_directory_is_refused_unless_its_run_is_continued)
{
    begin();
    REQUIRE_OK(PREPARE(), err);
    write_step(4, "mine");
    write_step(8, "mine");
    CHECK_STATUS(GP_EBUSY, PREPARE());
    CHECK_CONTAINS(err.message, "already has checkpoints (step 8)");
    CHECK_CONTAINS(err.message, "--resume auto");

    /* an explicit run id states which run owns the checkpoints */
    REQUIRE_OK(PREPARE("run-id=mine", ), err);
    CHECK_TEXT(directory, training->run->options.resume);
    CHECK_STATUS(GP_EBUSY, PREPARE("run-id=yours", ));
    CHECK_STATUS(GP_EINVAL, PREPARE("run-id=a/b", ));
    CHECK_CONTAINS(err.message, "run-id is 'a/b'");

    /* Resuming an older step is refused: the later checkpoint in the same run stays the newest
     * one. */
    CHECK_STATUS(GP_EBUSY, PREPARE(resume_option(4), ));
    CHECK_CONTAINS(err.message, "later checkpoint of this run (step 8, resuming from step 4)");
    REQUIRE_OK(PREPARE(resume_option(8), ), err);
    CHECK_TEXT("mine", RUN_ID);
    end();
}

static void write_network(char *path, size_t bytes)
{
    static const char text[] =
        "{\"name\": \"tiny\", \"input\": [1, 28, 28], \"scale\": [0.0039], \"offset\": [0], \"layers\": "
        "[{\"name\": \"f\", \"kind\": \"fc\", \"outputs\": 10}, {\"name\": \"l\", \"kind\": "
        "\"crossentropy\"}]}";

    snprintf(path, bytes, "%s/tiny.json", directory);
    REQUIRE_OK(gp_file_write(path, text, strlen(text), &err), err);
}

TEST(resume_refuses_two_runs_another_network_and_finished_runs)
{
    char network[100];

    begin();
    REQUIRE_OK(PREPARE(), err);
    write_step(4, "first");
    write_step(9, "second");
    CHECK_STATUS(GP_EINVAL, PREPARE("resume=auto", ));
    CHECK_CONTAINS(err.message, "two runs: second (step 9) and first (step 4)");
    CHECK_STATUS(GP_EBUSY, PREPARE(resume_option(9), ));
    CHECK_CONTAINS(err.message, "another run (step 4, run first)");
    CHECK_STATUS(GP_EINVAL, PREPARE(resume_option(9), "run-id=first", ));
    CHECK_CONTAINS(err.message, "belongs to run second, not to first; drop --run-id");
    REQUIRE_OK(prepare_network("lenet", (const char *const[]){ resume_option(4), NULL }), err);
    CHECK_TEXT("first", RUN_ID);
    leftovers_clear(directory);
    REQUIRE(mkdir(directory, 0700) == 0);
    write_step(4, "first");
    write_network(network, sizeof(network));
    CHECK_STATUS(GP_EINVAL,
                 prepare_network(network, (const char *const[]){ path_option(), "resume=auto", NULL }));
    CHECK_CONTAINS(err.message, "(network lenet) do not match network tiny");
    CHECK_STATUS(GP_EINVAL, PREPARE("resume=auto", "seed=7", ));
    CHECK_CONTAINS(err.message, "resume with --seed 1");
    REQUIRE_OK(PREPARE("resume=auto", "max-epochs=1", ), err); /* ends at once with the model */
    CHECK_STATUS(GP_EINVAL, PREPARE(resume_option(4), "max-epochs=1", ));
    CHECK_CONTAINS(err.message, "has completed its 1 epoch;");

    /* compared on the worker */
    REQUIRE_OK(PREPARE("resume=auto", "mini-batch-size-per-worker=32", ), err);
    end();
}

/* Directories from releases without run ids contain one run with an empty id. */
TEST(checkpoints_without_a_run_id_are_one_run_and_stay_one)
{
    begin();
    REQUIRE_OK(PREPARE(), err);
    write_step(4, "");
    CHECK_STATUS(GP_EBUSY, PREPARE());
    REQUIRE_OK(PREPARE("resume=auto", ), err);
    CHECK_TEXT("", RUN_ID);
    CHECK_TEXT(directory, training->run->options.resume);
    CHECK_INT(4, newest_up_to(UINT64_MAX));
    end();
}

TEST(restart_uses_checkpoints_of_the_same_run_only)
{
    begin();
    REQUIRE_OK(PREPARE("run-id=mine", ), err);
    write_step(4, "mine");
    write_step(6, "mine");
    write_step(8, "other"); /* another training uses the same directory */
    CHECK_INT(6, newest_up_to(UINT64_MAX));
    CHECK_INT(4, newest_up_to(5));
    CHECK_INT(0, newest_up_to(3));
    end();
}

/* Without the list, the training would restart from the beginning. */
TEST(restart_fails_if_the_checkpoints_cannot_be_listed)
{
    gp_error why;

    begin();
    REQUIRE_OK(PREPARE("run-id=mine", ), err);
    write_step(4, "mine");
    REQUIRE_OK(gp_begin_message_set_options(&training->run->message, &training->run->options, &err), err);
    gp_fail(&why, GP_EPEER, "worker 1 failed");
    readdir_fails = true;
    gp_status status = gp_run_restart(training->run, &why, &why);

    readdir_fails = false;
    CHECK_STATUS(GP_EIO, status);
    CHECK_CONTAINS(why.message, "cannot list the checkpoints in ");
    CHECK_CONTAINS(why.message, "it had failed: worker 1 failed");
    end();
}

/* Restart after the checkpoint of the last restart was found to be damaged. */
static uint64_t restart_from_damaged(void)
{
    gp_error why;

    gp_fail(&why, GP_ECORRUPT, "damaged");
    CHECK_STATUS(GP_OK, gp_run_restart(training->run, &why, &err));
    return training->run->resumed_step;
}

static void ignore_warning(void *context, const char *text)
{
    (void)context;
    (void)text;
}

/* The checkpoints up to the last reported step are preferred, then the later ones follow. */
TEST(restart_tries_each_checkpoint_once_if_all_are_damaged)
{
    const gp_train_request request = { .events.warning = ignore_warning };

    begin();
    REQUIRE_OK(PREPARE("run-id=mine", ), err);
    write_step(8, "mine");
    write_step(12, "mine");
    REQUIRE_OK(gp_begin_message_set_options(&training->run->message, &training->run->options, &err), err);
    training->run->request = &request;
    training->summary.steps = 10;
    training->run->resumed_step = 8;
    CHECK_INT(12, restart_from_damaged());
    CHECK_INT(0, restart_from_damaged());
    CHECK_TEXT("", training->run->options.resume);
    training->summary.steps = 13;
    training->run->resumed_step = 12;
    CHECK_INT(8, restart_from_damaged());
    CHECK_INT(0, restart_from_damaged());
    end();
}

/* The workers skip a checkpoint without its tensors. */
TEST(checkpoint_without_its_tensors_is_not_chosen)
{
    char path[100];

    begin();
    REQUIRE_OK(PREPARE(), err);
    write_step(4, "mine");
    write_step(8, "mine");
    snprintf(path, sizeof(path), "%s/8.safetensors", directory);
    REQUIRE(truncate(path, 1000) == 0);
    REQUIRE_OK(PREPARE("resume=auto", ), err);
    CHECK_TEXT("mine", RUN_ID);
    CHECK_INT(4, newest_up_to(UINT64_MAX));
    REQUIRE_OK(PREPARE(resume_option(4), ), err); /* the later one is of no use */
    snprintf(path, sizeof(path), "%s/4.safetensors", directory);
    REQUIRE(unlink(path) == 0);
    CHECK_STATUS(GP_ECORRUPT, PREPARE("resume=auto", ));
    CHECK_CONTAINS(err.message, "8.safetensors is damaged: it has 1000 bytes, must have");
    end();
}

TEST(damaged_records_do_not_restart_the_training)
{
    char path[100];
    FILE *file;

    begin();
    snprintf(path, sizeof(path), "%s/8.json", directory);
    file = fopen(path, "w");
    REQUIRE(file != NULL && fputs("{}", file) >= 0 && fclose(file) == 0);
    CHECK_STATUS(GP_ECORRUPT, PREPARE("resume=auto", ));
    CHECK_CONTAINS(err.message, "8.json: it is damaged");
    CHECK_STATUS(GP_EBUSY, PREPARE());
    end();
}
