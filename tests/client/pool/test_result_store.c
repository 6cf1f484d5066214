/* test_result_store.c: the files of detached results: reads, expiry, limits, owners and the keeper.
 * The time is an argument, so no test waits. */
#include "client/pool/result_store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/system/file.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"

enum { NOW = 1000000000, HOUR = 3600000, DAY = 24 * HOUR };

static char root[32];
static result_store store;
static gp_error err;

static bool begin(void)
{
    strcpy(root, "/tmp/gpt-XXXXXX");
    return leftovers_make(root) != NULL && result_store_open(&store, root, &err) == GP_OK;
}

TEARDOWN()
{
    result_store_close(&store);
    leftovers_clear(root);
}

/* A stored object, for entries that have not ended. */
static result_object object(void)
{
    static int fd = -1;

    if (fd < 0)
        fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    return (result_object){ .fd = fd, .bytes = 100 };
}

static const result_key *key(const char *name)
{
    static result_key k = { .serial = 17 };

    snprintf(k.name, sizeof(k.name), "%s", name);
    return &k;
}

static result_head head_of(const char *name, uint32_t state, uint32_t reads)
{
    result_head head = { .state = state,
                         .reads_max = reads,
                         .ttl_ms = HOUR,
                         .owner = state == RESULT_PENDING ? result_self() : (result_owner){ 0 },
                         .attempts = 3,
                         .object = "ab12",
                         .function = "f" };

    snprintf(head.key.name, sizeof(head.key.name), "%s", name);
    head.key.serial = 17;
    return head;
}

static gp_status add_text(const char *name, uint32_t state, uint32_t reads, const char *text)
{
    const result_head head = head_of(name, state, reads);
    const result_object file = object();

    return result_add(&store, &head, text, strlen(text) + 1, &file, NOW, &err);
}

/* Read a result and compare it; NULL: do not compare. */
static gp_status read_text(const char *name, const char *expected, int64_t now_ms)
{
    void *data = NULL;
    size_t bytes = 0;
    bool pending;
    gp_status ended = GP_OK,
              status = result_read(&store, name, &ended, &data, &bytes, &pending, now_ms, &err);

    if (status == GP_OK && expected != NULL) {
        CHECK_TEXT(expected, data);
        CHECK_INT(strlen(expected) + 1, bytes);
        CHECK_STATUS(GP_OK, ended);
    }
    CHECK(pending == (status == GP_EBUSY));
    if (status == GP_OK)
        gp_free(data);
    return status;
}

/* Read the outcome of a failed call. Return its status, or GP_OK if the read failed. */
static gp_status read_failure(const char *name, const char *message)
{
    void *data = NULL;
    size_t bytes;
    bool pending;
    gp_status ended = GP_OK;

    CHECK_STATUS(GP_OK, result_read(&store, name, &ended, &data, &bytes, &pending, NOW, &err));
    CHECK_CONTAINS(data != NULL ? (const char *)data : "", message);
    CHECK(!pending);
    gp_free(data);
    return ended;
}

static uint32_t state_of(const char *name, int64_t now_ms)
{
    result_head head = { .state = 0 };

    return result_get(&store, name, &head, now_ms, NULL) == GP_OK ? head.state : 0;
}

static bool count_visit(void *context, const result_head *head)
{
    (void)head;
    ++*(uint32_t *)context;
    return true;
}

static uint32_t entries(void)
{
    uint32_t count = 0;

    CHECK_STATUS(GP_OK, result_each(&store, count_visit, &count, NOW, &err));
    return count;
}

/* Count the files of a folder below the results. */
static int files_in(const char *name)
{
    char path[64];
    int count = 0;

    snprintf(path, sizeof(path), "%s/results/%s", root, name);
    DIR *all = opendir(path);

    for (const struct dirent *file; all != NULL && (file = readdir(all)) != NULL;)
        count += file->d_name[0] != '.' || file->d_name[1] == 't';
    if (all != NULL)
        closedir(all);
    return count;
}

/* Run `work` in a child process, which has a store of its own. Return its exit code. */
static int in_child(int (*work)(void))
{
    fflush(stdout);
    pid_t child = fork();
    int state = 0;

    if (child == 0) {
        if (result_store_open(&store, root, &err) != GP_OK)
            _exit(100);
        _exit(work());
    }
    return waitpid(child, &state, 0) == child && WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

TEST(result_is_read_as_often_as_allowed)
{
    REQUIRE(begin());
    CHECK_STATUS(GP_OK, add_text("a", RESULT_READY, 2, "value"));
    CHECK_STATUS(GP_OK, read_text("a", "value", NOW));
    CHECK_STATUS(GP_OK, read_text("a", "value", NOW));
    CHECK_STATUS(GP_ESTATE, read_text("a", NULL, NOW));
    CHECK_CONTAINS(err.message, "was read 2 times");
    CHECK_INT(RESULT_READ, state_of("a", NOW));
    CHECK_STATUS(GP_OK, add_text("b", RESULT_READY, 0, ""));
    for (int i = 0; i < 5; i++)
        CHECK_STATUS(GP_OK, read_text("b", "", NOW));
    CHECK_STATUS(GP_ENOENT, read_text("c", NULL, NOW));
}

TEST(last_read_on_a_full_disk_returns_the_result_and_removes_the_entry)
{
    struct rlimit usual, none;

    REQUIRE(begin());
    CHECK_STATUS(GP_OK, add_text("a", RESULT_READY, 1, "value"));
    signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &usual) == 0);
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = usual.rlim_max };
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &none));
    gp_status status = read_text("a", "value", NOW);

    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &usual));
    CHECK_STATUS(GP_OK, status);
    CHECK_STATUS(GP_ENOENT, read_text("a", NULL, NOW));
    CHECK_INT(0, files_in("entries"));
}

TEST(result_expires_after_its_time_and_is_forgotten_a_day_later)
{
    REQUIRE(begin());
    CHECK_STATUS(GP_OK, add_text("a", RESULT_PENDING, 0, "argument"));
    CHECK_STATUS(GP_EBUSY, read_text("a", NULL, NOW + 30 * (int64_t)DAY)); /* its process runs */
    CHECK_STATUS(GP_OK, result_end(&store, key("a"), GP_OK, "value", 6, NOW + DAY, &err));
    CHECK_STATUS(GP_OK, read_text("a", "value", NOW + DAY + HOUR - 1));
    CHECK_STATUS(GP_ESTALE, read_text("a", NULL, NOW + DAY + HOUR));
    CHECK_CONTAINS(err.message, "expired 3600 s after its call had ended");
    CHECK_STATUS(GP_OK, result_prune(&store, NOW + DAY + HOUR + DAY - 1, &err));
    CHECK_INT(1, entries());
    CHECK_STATUS(GP_OK, result_prune(&store, NOW + DAY + HOUR + DAY, &err));
    CHECK_INT(0, entries());
    CHECK_STATUS(GP_ENOENT, read_text("a", NULL, NOW));
}

TEST(error_of_a_call_is_returned_to_the_reader)
{
    REQUIRE(begin());
    CHECK_STATUS(GP_OK, add_text("a", RESULT_PENDING, 1, "argument"));
    CHECK_STATUS(GP_OK, result_end(&store, key("a"), GP_EINVAL, "no such fold", 13, NOW, &err));
    CHECK_STATUS(GP_EINVAL, read_failure("a", "no such fold"));
    CHECK_STATUS(GP_ESTATE, read_text("a", NULL, NOW));
    CHECK_STATUS(GP_ESTALE, result_end(&store, key("a"), GP_OK, "late", 5, NOW, &err));

    /* The status of a call is not taken for an error of the read. */
    CHECK_STATUS(GP_OK, add_text("b", RESULT_PENDING, 1, "argument"));
    CHECK_STATUS(GP_OK, result_end(&store, key("b"), GP_EBUSY, "no port is free", 16, NOW, &err));
    CHECK_STATUS(GP_EBUSY, read_failure("b", "no port is free"));
}

TEST(limits_of_bytes_and_entries_are_kept)
{
    char text[64], name[16];

    REQUIRE(begin());
    store.bytes_max = 40;
    store.total_max = 60;
    memset(text, 'x', sizeof(text));
    text[40] = '\0'; /* 41 bytes */
    CHECK_STATUS(GP_ELIMIT, add_text("a", RESULT_READY, 1, text));
    text[39] = '\0';
    CHECK_STATUS(GP_OK, add_text("a", RESULT_READY, 1, text));
    CHECK_STATUS(GP_ELIMIT, add_text("b", RESULT_READY, 1, text));
    CHECK_STATUS(GP_OK, add_text("b", RESULT_PENDING, 1, "x"));
    CHECK_STATUS(GP_OK, result_end(&store, key("b"), GP_OK, text, 40, NOW, &err)); /* becomes an error */
    CHECK_STATUS(GP_ELIMIT, read_failure("b", "the maximum"));
    CHECK_STATUS(GP_OK, read_text("a", text, NOW)); /* frees its bytes */
    CHECK_STATUS(GP_OK, add_text("c", RESULT_READY, 1, text));
    CHECK_STATUS(GP_OK, result_remove(&store, "c", &err));
    CHECK_STATUS(GP_OK, add_text("c", RESULT_READY, 1, text));
    CHECK_STATUS(GP_EBUSY, add_text("c", RESULT_READY, 1, "x"));

    store.count_max = 6; /* a, b were read and give way; c stays */
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        CHECK_STATUS(i < 5 ? GP_OK : GP_ELIMIT, add_text(name, RESULT_READY, 1, "x"));
    }
    CHECK_INT(6, entries());
    CHECK_INT(6, files_in("entries"));
}

static int claim_fails(void)
{
    result_head head;
    void *data;

    return result_claim(&head, &data, &store, "a", 5, NULL) == GP_EBUSY &&
                   result_end(&store, key("a"), GP_OK, "x", 2, NOW, NULL) == GP_ESTALE &&
                   result_release(&store, key("a"), 0, false, NULL) == GP_ESTALE
               ? 0
               : 1;
}

static int claim_and_exit(void)
{
    result_head head;
    void *data;

    return result_claim(&head, &data, &store, "a", 5, NULL) == GP_OK ? 0 : 1;
}

TEST(only_the_owner_of_an_entry_ends_its_call)
{
    result_head head;
    void *data = NULL;

    REQUIRE(begin());
    CHECK_STATUS(GP_OK, add_text("a", RESULT_PENDING, 0, "argument"));
    CHECK_INT(0, in_child(claim_fails));
    CHECK_STATUS(GP_OK, result_release(&store, key("a"), 1, false, &err));
    CHECK_STATUS(GP_ESTALE, result_end(&store, key("a"), GP_OK, "x", 2, NOW, &err));
    CHECK_INT(0, in_child(claim_and_exit));
    CHECK_INT(RESULT_PENDING, state_of("a", NOW));
    REQUIRE_OK(result_claim(&head, &data, &store, "a", 5, &err), err); /* its owner has exited */
    CHECK_INT(2, head.starts);
    CHECK_TEXT("argument", data);
    gp_free(data);
    CHECK_STATUS(GP_EBUSY, result_claim(&head, &data, &store, "a", 5, &err));
    CHECK_STATUS(GP_OK, result_end(&store, key("a"), GP_OK, "value", 6, NOW, &err));
    CHECK_STATUS(GP_OK, read_text("a", "value", NOW));
}

TEST(result_of_a_removed_entry_does_not_end_its_successor)
{
    const result_key stale = { .serial = 16, .name = "a" };

    REQUIRE(begin());
    CHECK_STATUS(GP_OK, add_text("a", RESULT_PENDING, 0, "argument"));
    CHECK_STATUS(GP_ESTALE, result_end(&store, &stale, GP_OK, "x", 2, NOW, &err));
    CHECK_STATUS(GP_ESTALE, result_release(&store, &stale, 0, false, &err));
    CHECK_STATUS(GP_EBUSY, read_text("a", NULL, NOW));
}

TEST(lack_of_descriptors_does_not_look_like_another_owner)
{
    struct rlimit full, none;
    int next;

    REQUIRE(begin());
    CHECK_STATUS(GP_OK, add_text("a", RESULT_PENDING, 0, "argument"));
    REQUIRE(getrlimit(RLIMIT_NOFILE, &full) == 0);
    next = dup(0);
    close(next);
    none = (struct rlimit){ .rlim_cur = (rlim_t)next, .rlim_max = full.rlim_max };
    CHECK_INT(0, setrlimit(RLIMIT_NOFILE, &none));
    CHECK_STATUS(GP_ELIMIT, result_end(&store, key("a"), GP_OK, "value", 6, NOW, &err));
    CHECK_CONTAINS(err.message, "cannot open the result 'a'");
    none.rlim_cur++; /* enough for one file at a time */
    CHECK_INT(0, setrlimit(RLIMIT_NOFILE, &none));
    CHECK_STATUS(GP_OK, result_end(&store, key("a"), GP_OK, "value", 6, NOW, &err));
    CHECK_INT(0, setrlimit(RLIMIT_NOFILE, &full));
    CHECK_STATUS(GP_OK, read_text("a", "value", NOW));
}

TEST(call_without_a_process_expires_after_seven_days)
{
    REQUIRE(begin());
    CHECK_STATUS(GP_OK, add_text("a", RESULT_PENDING, 0, "argument"));
    CHECK_STATUS(GP_OK, result_release(&store, key("a"), 0, false, &err));
    CHECK_STATUS(GP_EBUSY, read_text("a", NULL, NOW + 7 * (int64_t)DAY - 1));
    CHECK_STATUS(GP_ESTALE, read_text("a", NULL, NOW + 7 * (int64_t)DAY));
    CHECK_CONTAINS(err.message, "no process ran its call for 7 days");
}

enum { READERS = 6, VALUES = 40 };

/* Read all results, in an order that depends on the process. Return how many it received. */
static int read_all(void)
{
    int got = 0;

    for (int i = 0; i < VALUES; i++) {
        char name[16];

        snprintf(name, sizeof(name), "v%d", (i * 7 + (int)getpid()) % VALUES);
        gp_status status = read_text(name, name, NOW);

        got += status == GP_OK;
        if (status != GP_OK && status != GP_ESTATE)
            return 255;
    }
    return got;
}

TEST(each_result_of_one_read_goes_to_one_of_many_readers)
{
    pid_t children[READERS];
    int total = 0;

    REQUIRE(begin());
    for (int i = 0; i < VALUES; i++) {
        char name[16];

        snprintf(name, sizeof(name), "v%d", i);
        CHECK_STATUS(GP_OK, add_text(name, RESULT_READY, 1, name));
    }
    fflush(stdout);
    for (int i = 0; i < READERS; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(result_store_open(&store, root, &err) == GP_OK ? read_all() : 255);
    }
    for (int i = 0; i < READERS; i++) {
        int state = 0;

        waitpid(children[i], &state, 0);
        REQUIRE(WIFEXITED(state) && WEXITSTATUS(state) <= VALUES);
        total += WEXITSTATUS(state);
    }
    CHECK_INT(VALUES, total);
}

TEST(read_ends_while_another_process_holds_the_lock)
{
    char path[80];

    REQUIRE(begin());
    CHECK_STATUS(GP_OK, add_text("a", RESULT_READY, 1, "once"));
    snprintf(path, sizeof(path), "%s/results/lock", root);
    int other = open(path, O_RDWR | O_CLOEXEC);
    void *data = NULL;
    size_t bytes;
    bool pending = true;
    gp_status ended;

    CHECK_STATUS(GP_OK, gp_file_lock(other));
    store.lock_ms = 10;
    CHECK_STATUS(GP_EBUSY, result_read(&store, "a", &ended, &data, &bytes, &pending, NOW, &err));
    CHECK(!pending);
    CHECK_CONTAINS(err.message, "cannot lock");
    close(other);
    CHECK_STATUS(GP_OK, read_text("a", "once", NOW));
}

TEST(damaged_entry_is_reported_and_can_be_removed)
{
    char path[80];

    REQUIRE(begin());
    CHECK_STATUS(GP_OK, add_text("a", RESULT_READY, 0, "value"));
    CHECK_STATUS(GP_OK, add_text("b", RESULT_READY, 0, "value"));
    snprintf(path, sizeof(path), "%s/results/entries/a", root);
    CHECK_INT(0, truncate(path, 100));
    CHECK_STATUS(GP_ECORRUPT, read_text("a", NULL, NOW));
    CHECK_CONTAINS(err.message, "gradpool results remove a");
    CHECK_INT(1, entries());
    CHECK_STATUS(GP_OK, result_remove(&store, "a", &err));
    CHECK_STATUS(GP_ENOENT, read_text("a", NULL, NOW));
    CHECK_STATUS(GP_EINVAL, read_text("../lock", NULL, NOW));
    CHECK_STATUS(GP_EINVAL, add_text(".a", RESULT_READY, 0, "x"));
    CHECK_STATUS(GP_EINVAL, add_text("", RESULT_READY, 0, "x"));
}

static int leave_draft(void)
{
    char path[80];

    snprintf(path, sizeof(path), "%s/results/entries/.t-%d-0", root, (int)getpid());
    int fd = open(path, O_WRONLY | O_CREAT, 0600);

    return fd >= 0 ? 0 : 1;
}

TEST(draft_of_a_killed_writer_is_removed)
{
    REQUIRE(begin());
    CHECK_INT(0, in_child(leave_draft));
    CHECK_INT(1, files_in("entries"));
    CHECK_STATUS(GP_OK, result_prune(&store, NOW, &err));
    CHECK_INT(0, files_in("entries"));
}

/* Add a result although a killed process with the same pid left drafts. */
static int add_beside_drafts(void)
{
    char path[80];

    for (int i = 0; i < 100; i++) {
        snprintf(path, sizeof(path), "%s/results/entries/.t-%d-%d", root, (int)getpid(), i);
        int fd = open(path, O_WRONLY | O_CREAT, 0600);

        if (fd < 0)
            return 1;
        close(fd);
    }
    return add_text("a", RESULT_READY, 1, "x") == GP_OK ? 0 : 2;
}

TEST(drafts_of_a_killed_writer_do_not_block_a_process_with_its_pid)
{
    REQUIRE(begin());
    CHECK_INT(0, in_child(add_beside_drafts));
    CHECK_STATUS(GP_OK, read_text("a", "x", NOW));
}

/* Return whether a keeper should be started. */
static bool keeper_wanted(int64_t now_ms)
{
    bool wanted = false;

    CHECK_STATUS(GP_OK, result_keeper_wanted(&wanted, &store, now_ms, &err));
    return wanted;
}

TEST(keeper_ends_when_no_call_is_left)
{
    int fd = -1, second = -1;

    REQUIRE(begin());
    CHECK(keeper_wanted(NOW));
    CHECK(!keeper_wanted(NOW + 1000)); /* it starts soon */
    CHECK(keeper_wanted(NOW + 6000));
    CHECK_STATUS(GP_OK, result_keeper_begin(&fd, &store, &err));
    CHECK(!keeper_wanted(NOW + 20000));
    CHECK_STATUS(GP_OK, result_keeper_begin(&second, &store, &err));
    CHECK_INT(-1, second);
    CHECK_STATUS(GP_OK, add_text("a", RESULT_PENDING, 0, "argument"));
    CHECK_INT(1, files_in("objects"));
    CHECK(!result_keeper_end(&fd, &store, NOW));
    CHECK_STATUS(GP_OK, result_end(&store, key("a"), GP_OK, "value", 6, NOW, &err));
    CHECK(result_keeper_end(&fd, &store, NOW));
    CHECK_INT(-1, fd);
    CHECK_INT(0, files_in("objects"));
    CHECK(keeper_wanted(NOW + 1)); /* the last request was served */
    CHECK_STATUS(GP_OK, read_text("a", "value", NOW));
}

TEST(lock_of_the_results_is_not_taken_for_a_keeper)
{
    char path[80];
    bool wanted = false;
    int fd = -1;

    REQUIRE(begin());
    snprintf(path, sizeof(path), "%s/results/lock", root);
    int other = open(path, O_RDWR | O_CLOEXEC);

    CHECK_STATUS(GP_OK, gp_file_lock(other));
    store.lock_ms = 10;
    CHECK_STATUS(GP_EBUSY, result_keeper_wanted(&wanted, &store, NOW, &err));
    CHECK_CONTAINS(err.message, "cannot lock");
    CHECK_STATUS(GP_EBUSY, result_keeper_begin(&fd, &store, &err));
    close(other);
    CHECK(keeper_wanted(NOW));
    snprintf(path, sizeof(path), "%s/results/keeper", root);
    CHECK_INT(0, unlink(path));
    CHECK_INT(0, mkdir(path, 0700)); /* the file cannot be opened */
    CHECK_STATUS(GP_EIO, result_keeper_wanted(&wanted, &store, NOW + 6000, &err));
    CHECK(!wanted);
    CHECK_STATUS(GP_EIO, result_keeper_begin(&fd, &store, &err));
    CHECK_CONTAINS(err.message, "cannot open");
}
