/* Test how the owner of a pool is opened. */
#include "scheduler/process/owner.h"

#include <inttypes.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/system/proc_stat.h"
#include "tests/gp_test.h"

static gp_error err;

/* Open a process as the owner, with another start time if `shift` is not 0. */
static gp_status open_owner(gp_owner *out, pid_t pid, uint64_t shift)
{
    gp_proc_stat stat;
    char text[60];

    if (!gp_proc_stat_read(&stat, pid))
        abort();
    snprintf(text, sizeof(text), "%d:%" PRIu64, pid, stat.start_time + shift);
    return gp_owner_open(out, text, &err);
}

TEST(an_owner_has_exited_if_its_process_is_gone_or_has_another_start_time)
{
    gp_owner owner;
    pid_t child = fork();

    if (child == 0)
        _exit(0);
    REQUIRE(child > 0);
    REQUIRE_OK(open_owner(&owner, getpid(), 0), err);
    CHECK(!gp_owner_exited(&owner));
    gp_owner_close(&owner);
    REQUIRE_OK(open_owner(&owner, getpid(), 1), err);
    CHECK(gp_owner_exited(&owner));
    gp_owner_close(&owner);
    CHECK_INT(child, waitpid(child, NULL, 0));
    char text[60];

    snprintf(text, sizeof(text), "%d:1", child);
    REQUIRE_OK(gp_owner_open(&owner, text, &err), err);
    CHECK(gp_owner_exited(&owner));
    gp_owner_close(&owner);
    CHECK_STATUS(GP_EINVAL, gp_owner_open(&owner, "7", &err));
}

TEST(an_owner_that_cannot_be_watched_has_not_exited)
{
    struct rlimit before, few;
    const int lowest = dup(STDIN_FILENO);
    gp_proc_stat stat;
    gp_owner owner;
    char text[60];

    REQUIRE(lowest >= 0 && gp_proc_stat_read(&stat, getpid()));
    close(lowest);
    snprintf(text, sizeof(text), "%d:%" PRIu64, getpid(), stat.start_time);
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);

    /* no descriptor is free; then one, which is not enough to read the start time */
    for (rlim_t free_count = 0; free_count < 2; free_count++) {
        few = (struct rlimit){ (rlim_t)lowest + free_count, before.rlim_max };
        REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
        gp_status status = gp_owner_open(&owner, text, &err);

        REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
        CHECK_STATUS(GP_ELIMIT, status);
        CHECK(!gp_owner_exited(&owner));
    }
    REQUIRE_OK(gp_owner_open(&owner, text, &err), err);
    CHECK(!gp_owner_exited(&owner));
    gp_owner_close(&owner);
}
