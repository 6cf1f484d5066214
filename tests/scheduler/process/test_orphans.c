/* Test the search for workers of an earlier scheduler. */
#include "scheduler/process/orphans.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/local/listen.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"

static gp_paths paths;
static char door[GP_TEXT_ENDPOINT];

TEARDOWN()
{
    leftovers_clear(paths.pool_dir);
}

/* Listen as worker 1. */
static int worker_begin(void)
{
    struct sockaddr_un address;

    snprintf(paths.pool_dir, sizeof(paths.pool_dir), "/tmp/gp-orphans-XXXXXX");
    if (leftovers_make(paths.pool_dir) == NULL)
        abort();
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    gp_paths_worker_file(&paths, 1, 7, ".door", door);
    if (gp_unix_address(&address, door, NULL) != GP_OK ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 16) != 0)
        abort();
    return fd;
}

TEST(sockets_of_an_exited_worker_are_removed)
{
    gp_orphans found;
    int worker = worker_begin();

    gp_orphans_find(&found, &paths);
    REQUIRE(found.count == 1);
    CHECK_INT(getpid(), found.workers[0].child.pid);
    CHECK_INT(7, found.workers[0].child.incarnation);
    gp_orphans_free(&found);
    close(worker);
    gp_orphans_find(&found, &paths);
    CHECK_INT(0, found.count);
    CHECK(access(door, F_OK) != 0);
}

TEST(sockets_of_a_worker_remain_if_descriptors_are_scarce)
{
    struct rlimit limit;
    gp_orphans found;
    int worker = worker_begin(), next = open("/dev/null", O_RDONLY | O_CLOEXEC);

    close(next);
    getrlimit(RLIMIT_NOFILE, &limit);
    found.count = 0;
    for (int spare = 0; spare < 16 && found.count == 0; spare++) { /* lets each step of the search fail */
        setrlimit(RLIMIT_NOFILE,
                  &(struct rlimit){ .rlim_cur = (rlim_t)(next + spare), .rlim_max = limit.rlim_max });
        gp_orphans_find(&found, &paths);
        CHECK(access(door, F_OK) == 0);
    }
    CHECK_INT(1, found.count);
    gp_orphans_free(&found);
    setrlimit(RLIMIT_NOFILE, &limit);
    close(worker);
}
