#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gp_test.h"
#include "tests/leftovers.h"
#include "worker/process/claim.h"

static char folder[64];

static void folder_make(void)
{
    strcpy(folder, "/tmp/gp-claim-XXXXXX");
    if (leftovers_make(folder) == NULL)
        abort();
}

static void folder_remove(void)
{
    char command[100];

    snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command) != 0)
        abort();
}

static gp_status claim(int *out, const char *uuid, uint32_t index, int wait_ms, gp_error *err)
{
    gp_claim_holder holder = { .pid = (uint32_t)getpid(), .pool = "default", .index = index };

    return gp_claim_take(out, folder, uuid, &holder, wait_ms, err);
}

TEST(a_device_is_claimed_once_and_the_refusal_names_the_holder)
{
    char holder[80];
    gp_error err;
    int first, second = -7, other;

    folder_make();
    REQUIRE_OK(claim(&first, "GPU-1", 1, 0, &err), err);
    CHECK(fcntl(first, F_GETFD) & FD_CLOEXEC);
    CHECK_STATUS(GP_EBUSY, claim(&second, "GPU-1", 2, 0, &err));
    CHECK_INT(-7, second);
    snprintf(holder, sizeof(holder), "device GPU-1 is held by worker 1 of pool default (pid %d)",
             (int)getpid());
    CHECK_TEXT(holder, err.message);
    REQUIRE_OK(claim(&other, "GPU-2", 2, 0, &err), err);
    gp_claim_release(first);
    REQUIRE_OK(claim(&second, "GPU-1", 2, 0, &err), err);
    CHECK_STATUS(GP_EBUSY, claim(&first, "GPU-1", 3, 0, &err));
    CHECK_CONTAINS(err.message, "worker 2");
    gp_claim_release(second);
    gp_claim_release(other);
    folder_remove();
}

TEST(claim_ends_with_its_process_and_the_next_one_waits)
{
    int ready[2], end[2], second;
    gp_error err;
    char byte;

    folder_make();
    REQUIRE(pipe(ready) == 0 && pipe(end) == 0);
    pid_t holder = fork();

    if (holder == 0) {
        int mine;

        close(end[1]);
        if (claim(&mine, "GPU-1", 1, 0, NULL) != GP_OK || write(ready[1], "x", 1) != 1)
            _exit(1);
        byte = read(end[0], &byte, 1) == 1; /* end of the parent */
        usleep(50000);
        _exit(byte); /* not released: the kernel releases the lock */
    }
    REQUIRE(read(ready[0], &byte, 1) == 1);
    CHECK_STATUS(GP_EBUSY, claim(&second, "GPU-1", 2, 0, &err));
    close(end[1]);
    REQUIRE_OK(claim(&second, "GPU-1", 2, 60000, &err), err);
    gp_claim_release(second);
    waitpid(holder, NULL, 0);
    close(end[0]);
    close(ready[0]);
    close(ready[1]);
    folder_remove();
}

TEST(no_uuid_escapes_the_device_folder)
{
    gp_error err;
    int first, second;
    char path[100];

    folder_make();
    REQUIRE_OK(claim(&first, "../../etc/passwd", 1, 0, &err), err);
    snprintf(path, sizeof(path), "%s/_._.._etc_passwd", folder);
    CHECK(access(path, F_OK) == 0);
    REQUIRE_OK(claim(&second, "MIG-GPU-1/2/0", 1, 0, &err), err);
    snprintf(path, sizeof(path), "%s/MIG-GPU-1_2_0", folder);
    CHECK(access(path, F_OK) == 0);
    gp_claim_release(first);
    gp_claim_release(second);
    CHECK_STATUS(GP_EINVAL, claim(&first, "", 1, 0, &err));
    snprintf(path, sizeof(path), "%s/GPU-9", folder);
    REQUIRE(symlink("/etc/hostname", path) == 0);
    CHECK_STATUS(GP_EIO, claim(&first, "GPU-9", 1, 0, &err));
    folder_remove();
    CHECK_STATUS(GP_EIO, claim(&first, "GPU-1", 1, 0, &err));
    CHECK_CONTAINS(err.message, folder);
}
