/* test_job_folder.c: records of a job folder, and attempts that take numbers. */
#include "client/cluster/job_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/system/file.h"
#include "tests/proto/scratch.h"
#include "tests/gp_test.h"

static const char command_text[] =
    "{\"version\": 1, \"engine\": \"slurm\", \"directory\": \"/\", \"umask\": \"022\", "
    "\"requeue\": true, \"words\": [\"train\"], \"variables\": [\"A=b\"]}";

/* Create a job folder with a new name in the scratch folder. */
static const char *folder_new(void)
{
    static char folder[256];
    char name[CLUSTER_NAME_BYTES];
    gp_error err;

    if (cluster_name_new(name, &err) != GP_OK || !cluster_name_valid(name))
        abort();
    snprintf(folder, sizeof(folder), "%s/%s", scratch_dir, name);
    if (cluster_folder_create(folder, command_text, strlen(command_text), &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    return folder;
}

static mode_t mode_of(const char *folder, const char *name)
{
    char path[512];
    struct stat info = { 0 };

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return stat(path, &info) == 0 ? info.st_mode & 07777 : 0;
}

TEST(launch_names_are_random_and_checked)
{
    char a[CLUSTER_NAME_BYTES], b[CLUSTER_NAME_BYTES];
    gp_error err;

    REQUIRE_OK(cluster_name_new(a, &err), err);
    REQUIRE_OK(cluster_name_new(b, &err), err);
    CHECK(strcmp(a, b) != 0);
    CHECK(cluster_name_valid(a));
    CHECK(!cluster_name_valid("gp-0123456789abcde"));
    CHECK(!cluster_name_valid("gp-0123456789abcdef0"));
    CHECK(!cluster_name_valid("gp-0123456789ABCDEF"));
    CHECK(!cluster_name_valid("xx-0123456789abcdef"));
}

TEST(command_is_read_as_it_was_written)
{
    const char *words[] = { "train", "--network", "a \"b\"\n", "" }, *variables[] = { "A=b", "C=" };
    cluster_command sent = { .engine = "slurm",
                             .directory = "/data",
                             .umask = 027,
                             .requeue = true,
                             .words = words,
                             .word_count = 4,
                             .variables = variables,
                             .variable_count = 2 },
                    got;
    gp_buffer text;
    gp_error err;

    gp_buffer_init(&text, CLUSTER_COMMAND_JSON_MAX);
    REQUIRE_OK(cluster_command_format(&sent, &text, &err), err);
    REQUIRE_OK(cluster_command_parse(&got, gp_buffer_text(&text), text.bytes, &err), err);
    CHECK_TEXT("slurm", got.engine);
    CHECK_TEXT("/data", got.directory);
    CHECK_INT(027, got.umask);
    CHECK(got.requeue);
    REQUIRE(got.word_count == 4 && got.variable_count == 2);
    for (int i = 0; i < 4; i++)
        CHECK_TEXT(words[i], got.words[i]);
    CHECK_TEXT("C=", got.variables[1]);
    CHECK(got.words[4] == NULL);
    cluster_command_deinit(&got);
    gp_buffer_deinit(&text);
}

TEST(command_that_is_no_utf8_is_refused)
{
    const char *words[] = { "train", "--data", "/photos/\xe9t\xe9" }, *variables[] = { "TOKEN=secret\xff" };
    cluster_command command = {
        .engine = "slurm", .directory = "/", .words = words, .word_count = 3, .variables = variables
    };
    gp_buffer text;
    gp_error err;

    gp_buffer_init(&text, CLUSTER_COMMAND_JSON_MAX);
    CHECK_STATUS(GP_EINVAL, cluster_command_format(&command, &text, &err));
    CHECK_CONTAINS(err.message, "word 3 of the command is not valid UTF-8 (0xe9 at byte 9)");
    words[2] = "/photos/\xc3\xa9t\xc3\xa9";
    REQUIRE_OK(cluster_command_format(&command, &text, &err), err);
    command.variable_count = 1;
    CHECK_STATUS(GP_EINVAL, cluster_command_format(&command, &text, &err));
    CHECK_CONTAINS(err.message, "the variable TOKEN is not valid UTF-8 (0xff at byte 13)");
    CHECK(strstr(err.message, "secret") == NULL);
    command.variable_count = 0;
    command.directory = "/\x80";
    CHECK_STATUS(GP_EINVAL, cluster_command_format(&command, &text, &err));
    CHECK_CONTAINS(err.message, "the directory is not valid UTF-8");
    gp_buffer_deinit(&text);
}

TEST(malformed_commands_are_refused)
{
    static const struct {
        const char *from, *to, *problem;
    } faults[] = {
        { "\"version\": 1", "\"version\": 2", "version" },
        { "\"engine\": \"slurm\"", "\"engine\": \"\"", "engine" },
        { "\"directory\": \"/\"", "\"directory\": \".\"", "directory" },
        { "\"022\"", "\"9\"", "umask" },
        { "[\"train\"]", "[]", "words" },
        { "[\"train\"]", "[1]", "words" },
        { "[\"A=b\"]", "[\"=b\"]", "variables" },
        { "[\"A=b\"]", "[\"A\"]", "variables" },
        { "[\"A=b\"]", "{}", "variables" },
    };

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        const char *at = strstr(command_text, faults[i].from);
        cluster_command got;
        char text[512];
        gp_error err;

        REQUIRE(at != NULL);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - command_text), command_text, faults[i].to,
                 at + strlen(faults[i].from));
        CHECK_STATUS(GP_ECORRUPT, cluster_command_parse(&got, text, strlen(text), &err));
        CHECK_CONTAINS(err.message, faults[i].problem);
    }
}

TEST(folder_is_private_and_is_created_once)
{
    const char *folder = folder_new();
    cluster_command command;
    mode_t mask = umask(0);
    gp_error err;

    CHECK_INT(0700, mode_of(folder, "."));
    CHECK_INT(0700, mode_of(folder, "attempts"));
    CHECK_INT(0600, mode_of(folder, "command.json"));
    CHECK_STATUS(GP_EBUSY, cluster_folder_create(folder, "{}", 2, &err));
    REQUIRE_OK(cluster_command_read(&command, folder, &err), err);
    CHECK_TEXT("train", command.words[0]);
    cluster_command_deinit(&command);
    REQUIRE_OK(cluster_folder_cancel(folder, &err), err);
    CHECK_INT(0600, mode_of(folder, "cancel"));
    umask(mask);
}

TEST(newer_attempt_fences_the_older_one)
{
    const char *folder = folder_new();
    gp_fence first, second;
    gp_error err;

    REQUIRE_OK(cluster_attempt_take(&first, &(uint32_t){ 0 }, folder, &err), err);
    CHECK_INT(1, first.number);
    CHECK_STATUS(GP_OK, gp_fence_check(&first, &err));
    REQUIRE_OK(cluster_attempt_take(&second, &(uint32_t){ 0 }, folder, &err), err);
    CHECK_INT(2, second.number);
    CHECK_STATUS(GP_ESTALE, gp_fence_check(&first, &err));
    CHECK_STATUS(GP_OK, gp_fence_check(&second, &err));
    CHECK_STATUS(GP_ESTALE, cluster_attempt_result(folder, &first, 0, "finished", &err));
    REQUIRE_OK(cluster_attempt_result(folder, &second, 0, "finished", &err), err);
    CHECK_STATUS(GP_ESTALE, cluster_attempt_result(folder, &second, 1, "again", &err));
}

/* The disk is full for a time, or the file server does not reply. */
TEST(repeated_take_keeps_the_number)
{
    const char *folder = folder_new();
    gp_fence fence = { .number = 0 };
    uint32_t taken = 0;
    char path[512];
    gp_error err;

    snprintf(path, sizeof(path), "%s/newest", folder);
    REQUIRE(mkdir(path, 0700) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(GP_EIO, cluster_attempt_take(&fence, &taken, folder, &err));
        CHECK_CONTAINS(err.message, "newest");
        CHECK_INT(0, fence.number);
        CHECK_INT(1, taken);
    }
    REQUIRE(rmdir(path) == 0);
    REQUIRE_OK(cluster_attempt_take(&fence, &taken, folder, &err), err);
    CHECK_INT(1, fence.number);
    CHECK_STATUS(GP_OK, gp_fence_check(&fence, &err));
}

/* An attempt that stopped between mkdir() and the rename of `newest`, and resumes later. */
TEST(delayed_attempt_does_not_let_an_older_one_write)
{
    const char *folder = folder_new();
    gp_fence first, third;
    char path[512];
    gp_error err;

    REQUIRE_OK(cluster_attempt_take(&first, &(uint32_t){ 0 }, folder, &err), err);
    snprintf(path, sizeof(path), "%s/attempts/2", folder);
    CHECK_INT(0, mkdir(path, 0700));
    REQUIRE_OK(cluster_attempt_take(&third, &(uint32_t){ 0 }, folder, &err), err);
    CHECK_INT(3, third.number);
    snprintf(path, sizeof(path), "%s/newest", folder);
    for (const char *const *delayed = (const char *const[]){ "2\n", "1\n", NULL }; *delayed != NULL;
         delayed++) {
        REQUIRE_OK(gp_file_write(path, *delayed, 2, &err), err);
        CHECK_STATUS(GP_ESTALE, gp_fence_check(&first, &err));
        CHECK_STATUS(GP_OK, gp_fence_check(&third, &err));
    }
}

TEST(attempt_after_the_result_is_refused)
{
    const char *folder = folder_new();
    cluster_facts facts;
    gp_fence fence;
    gp_error err;

    REQUIRE_OK(cluster_attempt_take(&fence, &(uint32_t){ 0 }, folder, &err), err);
    REQUIRE_OK(cluster_attempt_result(folder, &fence, 0, "finished", &err), err);
    CHECK_STATUS(GP_ESTALE, cluster_attempt_take(&fence, &(uint32_t){ 0 }, folder, &err));
    CHECK_CONTAINS(err.message, "the job has ended already; its result is in ");
    REQUIRE_OK(cluster_folder_facts(folder, &facts, &err), err);
    CHECK_INT(1, facts.attempt);
}

/* A network file system can fail to open a file that exists. */
TEST(an_unreadable_result_is_not_a_missing_one)
{
    const char *folder = folder_new();
    char path[600];
    cluster_facts facts;
    gp_fence fence;
    gp_error err;

    REQUIRE_OK(cluster_attempt_take(&fence, &(uint32_t){ 0 }, folder, &err), err);
    snprintf(path, sizeof(path), "%s/result.json", folder);
    REQUIRE(symlink("result.json", path) == 0); /* ELOOP; EIO and ESTALE have the same effect */
    CHECK_STATUS(GP_EIO, cluster_folder_facts(folder, &facts, &err));
    CHECK_STATUS(GP_EIO, cluster_attempt_take(&fence, &(uint32_t){ 0 }, folder, &err));
    unlink(path);
    err.code = GP_OK;
    CHECK_STATUS(GP_OK, cluster_folder_facts(folder, &facts, &err));
    CHECK(!facts.has_result);
    CHECK_INT(GP_OK, err.code); /* commands would report it */
}

TEST(concurrent_attempts_take_different_numbers)
{
    enum { PROCESSES = 20 };
    const char *folder = folder_new();
    bool taken[PROCESSES + 1] = { false };
    int numbers[2], newest_count = 0;
    uint32_t newest = 0;
    char path[512];
    gp_error err;

    REQUIRE(pipe(numbers) == 0);
    for (int i = 0; i < PROCESSES; i++)
        if (fork() == 0) {
            gp_fence fence;
            gp_status status = cluster_attempt_take(&fence, &(uint32_t){ 0 }, folder, NULL);
            uint32_t number = status == GP_OK ? fence.number : 0;

            _exit(write(numbers[1], &number, sizeof(number)) != sizeof(number));
        }
    while (wait(NULL) > 0)
        ;
    for (int i = 0; i < PROCESSES; i++) {
        uint32_t number;

        REQUIRE(read(numbers[0], &number, sizeof(number)) == sizeof(number) && number <= PROCESSES);
        CHECK(number == 0 || !taken[number]);
        taken[number] = true;
        newest_count += number == PROCESSES;
    }
    close(numbers[0]);
    close(numbers[1]);
    CHECK_INT(1, newest_count);
    snprintf(path, sizeof(path), "%s/newest", folder);
    REQUIRE_OK(gp_fence_read(&newest, path, &err), err);
    CHECK_INT(PROCESSES, newest);
}

TEST(fence_is_passed_to_child_processes_by_a_variable)
{
    gp_fence fence;
    gp_error err;

    unsetenv(GP_FENCE_VARIABLE);
    REQUIRE_OK(gp_fence_open(&fence, &err), err);
    CHECK_INT(0, fence.number);
    CHECK_STATUS(GP_OK, gp_fence_check(&fence, &err));
    setenv(GP_FENCE_VARIABLE, "3:/a:b/newest", 1);
    REQUIRE_OK(gp_fence_open(&fence, &err), err);
    CHECK_INT(3, fence.number);
    CHECK_TEXT("/a:b/newest", fence.file);
    CHECK_STATUS(GP_ENOENT, gp_fence_check(&fence, &err)); /* unknown: it must not write */
    for (const char *const *bad =
             (const char *const[]){ "3", "3:", "0:/a", "-1:/a", "x:/a", "3:a", "99999999999:/a", NULL };
         *bad != NULL; bad++) {
        setenv(GP_FENCE_VARIABLE, *bad, 1);
        CHECK_STATUS(GP_EINVAL, gp_fence_open(&fence, &err));
    }
    unsetenv(GP_FENCE_VARIABLE);
}

TEST(damaged_newest_stops_all_writes)
{
    const char *folder = folder_new();
    gp_fence fence;
    char path[512];
    gp_error err;

    REQUIRE_OK(cluster_attempt_take(&fence, &(uint32_t){ 0 }, folder, &err), err);
    snprintf(path, sizeof(path), "%s/newest", folder);
    for (const char *const *bad = (const char *const[]){ "", "x\n", "1", "0\n", "99999999999\n", NULL };
         *bad != NULL; bad++) {
        REQUIRE_OK(gp_file_write(path, *bad, strlen(*bad), &err), err);
        CHECK_STATUS(GP_ECORRUPT, gp_fence_check(&fence, &err));
    }
}

TEST(facts_describe_the_attempts_and_the_result)
{
    const char *folder = folder_new();
    cluster_facts facts;
    gp_fence fence;
    gp_error err;

    REQUIRE_OK(cluster_folder_facts("/nonexistent", &facts, &err), err);
    CHECK(facts.attempt == 0 && !facts.canceled && !facts.has_result);
    REQUIRE_OK(cluster_folder_facts(folder, &facts, &err), err);
    CHECK(facts.attempt == 0 && !facts.begun);
    REQUIRE_OK(cluster_attempt_take(&fence, &(uint32_t){ 0 }, folder, &err), err);
    REQUIRE_OK(cluster_folder_facts(folder, &facts, &err), err);
    CHECK(facts.attempt == 1 && !facts.begun);
    REQUIRE_OK(cluster_attempt_begin(folder, 1, "n1", "4803", &err), err);
    REQUIRE_OK(cluster_attempt_end(folder, 1, "time limit", &err), err);
    REQUIRE_OK(cluster_attempt_take(&fence, &(uint32_t){ 0 }, folder, &err), err);
    REQUIRE_OK(cluster_folder_facts(folder, &facts, &err), err);
    CHECK_TEXT("", facts.engine_id);
    REQUIRE_OK(cluster_attempt_begin(folder, 2, "n2", "4804", &err), err);
    REQUIRE_OK(cluster_folder_cancel(folder, &err), err);
    REQUIRE_OK(cluster_folder_cancel(folder, &err), err);
    REQUIRE_OK(cluster_attempt_result(folder, &fence, 3, "a \"reason\"", &err), err);
    REQUIRE_OK(cluster_folder_facts(folder, &facts, &err), err);
    CHECK_INT(2, facts.attempt);
    CHECK(facts.begun && facts.canceled && facts.has_result);
    CHECK_TEXT("n2", facts.host);
    CHECK_TEXT("4804", facts.engine_id);
    CHECK_TEXT("time limit", facts.attempt_reason);
    CHECK_INT(2, facts.result_attempt);
    CHECK_INT(3, facts.exit_code);
    CHECK_TEXT("a \"reason\"", facts.reason);
    CHECK(facts.begin_ms > 0 && facts.end_ms >= facts.begin_ms);
    /* engines other than Slurm pass the launch name to the job */
    folder = folder_new();
    REQUIRE_OK(cluster_attempt_take(&fence, &(uint32_t){ 0 }, folder, &err), err);
    REQUIRE_OK(cluster_attempt_begin(folder, 1, "n1", "gp-0123456789abcdef", &err), err);
    REQUIRE_OK(cluster_folder_facts(folder, &facts, &err), err);
    CHECK(facts.begun);
    CHECK_TEXT("", facts.engine_id);
}

/* Run a check in a child process, whose environment has the fence. Return its exit code. */
static int in_attempt(const gp_fence *fence, gp_status (*check)(const char *folder, gp_error *err),
                      const char *folder)
{
    int ended = -1;
    pid_t child = fork();

    if (child == 0) {
        char value[GP_FENCE_BYTES];
        gp_error err;

        snprintf(value, sizeof(value), "%u:%s", fence->number, fence->file);
        setenv(GP_FENCE_VARIABLE, value, 1);
        _exit((int)check(folder, &err));
    }
    waitpid(child, &ended, 0);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

static gp_status write_model(const char *folder, gp_error *err)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/model.onnx", folder);
    return gp_file_write(path, "model", 5, err);
}

TEST(outdated_process_replaces_no_file)
{
    const char *folder = folder_new();
    gp_fence first, second;
    char path[512];
    gp_error err;

    REQUIRE_OK(cluster_attempt_take(&first, &(uint32_t){ 0 }, folder, &err), err);
    REQUIRE_OK(cluster_attempt_take(&second, &(uint32_t){ 0 }, folder, &err), err);
    snprintf(path, sizeof(path), "%s/model.onnx", folder);
    CHECK_INT(GP_ESTALE, in_attempt(&first, write_model, folder));
    CHECK(access(path, F_OK) != 0);
    CHECK_INT(GP_OK, in_attempt(&second, write_model, folder));
    CHECK(access(path, F_OK) == 0);
}

TEST(detached_files_keep_their_lines_and_lose_their_writers)
{
    const char *folder = folder_new();
    char path[512], *text = NULL;
    size_t bytes;
    gp_fence first, second;
    gp_error err;

    REQUIRE_OK(cluster_attempt_take(&first, &(uint32_t){ 0 }, folder, &err), err);
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    int writer = open(path, O_WRONLY | O_CREAT | O_APPEND, 0640);

    REQUIRE(writer >= 0 && write(writer, "1\n", 2) == 2);
    REQUIRE_OK(cluster_attempt_take(&second, &(uint32_t){ 0 }, folder, &err), err);
    REQUIRE_OK(cluster_attempt_detach(folder, 2, &err), err);
    CHECK_INT(2, write(writer, "2\n", 2));
    close(writer);
    REQUIRE_OK(gp_file_read((uint8_t **)&text, &bytes, path, 100, &err), err);
    CHECK_TEXT("1\n", text);
    CHECK_INT(0640, mode_of(folder, "metrics.jsonl"));
    gp_free(text);
    REQUIRE_OK(cluster_attempt_detach(folder, 2, &err), err);
}
