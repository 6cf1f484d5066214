/* test_multinode.c: network detection in a fake /sys and /proc, and the resulting settings for
 * NCCL. */
#include "tests/gp_test.h"
#include "tests/leftovers.h"

#include <sys/stat.h>

#include "worker/train/multinode.h"

static char root[64];

static void put(const char *path, const char *text)
{
    char whole[400];
    FILE *file;

    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    file = fopen(whole, "w");
    REQUIRE(file != NULL);
    fputs(text, file);
    fclose(file);
}

static void interface_put(const char *name, const char *state, const char *speed)
{
    char path[200];

    snprintf(path, sizeof(path), "/sys/class/net/%s/operstate", name);
    put(path, state);
    snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
    put(path, speed);
}

static void machine_begin(void)
{
    strcpy(root, "/tmp/gp_multinode_XXXXXX");
    REQUIRE(leftovers_make(root) != NULL);
    unsetenv("NCCL_SOCKET_IFNAME");
    interface_put("lo", "up\n", "");
    interface_put("docker0", "up\n", "100000\n");
    interface_put("eth0", "up\n", "1000\n");
    interface_put("eth1", "up\n", "100000\n");
    interface_put("eth2", "down\n", "400000\n");
    put("/proc/net/route", "Iface\tDestination\tGateway\neth0\t0000A8C0\t0\neth0\t00000000\t0101A8C0\n");
}

TEARDOWN()
{
    leftovers_clear(root);
}

TEST(fastest_physical_interface_that_is_up_is_chosen)
{
    gp_multinode found;
    gp_error err;
    char text[300];
    bool warning;

    machine_begin();
    REQUIRE_OK(gp_multinode_detect(&found, root, &err), err);
    CHECK_TEXT("=eth1", found.interface);
    CHECK_INT(100000, found.speed);
    gp_multinode_describe(&found, text, sizeof(text), &warning);
    CHECK(warning);
    CHECK_CONTAINS(text, "no InfiniBand or RoCE card");
    interface_put("eth1", "up\n", "1000\n");
    REQUIRE_OK(gp_multinode_detect(&found, root, &err), err);
    CHECK_TEXT("=eth0", found.interface); /* among equals, the interface with the default route */
}

TEST(an_interface_that_is_named_must_be_up)
{
    gp_multinode found;
    gp_error err;

    machine_begin();
    setenv("NCCL_SOCKET_IFNAME", "=eth2", 1);
    CHECK_STATUS(GP_EINVAL, gp_multinode_detect(&found, root, &err));
    CHECK_CONTAINS(err.message, "NCCL_SOCKET_IFNAME='=eth2'");
    CHECK_CONTAINS(err.message, "eth0");
    setenv("NCCL_SOCKET_IFNAME", "eth", 1);
    REQUIRE_OK(gp_multinode_detect(&found, root, &err), err);
    CHECK_TEXT("eth", found.interface);
    setenv("NCCL_SOCKET_IFNAME", "^lo,docker,eth", 1);
    CHECK_STATUS(GP_EINVAL, gp_multinode_detect(&found, root, &err));
    unsetenv("NCCL_SOCKET_IFNAME");
    interface_put("eth0", "down\n", "");
    interface_put("eth1", "down\n", "");
    CHECK_STATUS(GP_ENODEV, gp_multinode_detect(&found, root, &err));
}

TEST(infiniband_card_with_an_active_port_is_used_and_gpudirect_reported)
{
    gp_multinode found;
    gp_error err;
    char text[300];
    bool warning;

    machine_begin();
    put("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    put("/sys/class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n");
    REQUIRE_OK(gp_multinode_detect(&found, root, &err), err);
    CHECK_TEXT("mlx5_1", found.card);
    CHECK(!found.direct);
    gp_multinode_describe(&found, text, sizeof(text), &warning);
    CHECK(warning);
    CHECK_CONTAINS(text, "modprobe nvidia-peermem");
    put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65\n");
    REQUIRE_OK(gp_multinode_detect(&found, root, &err), err);
    CHECK(found.direct);
    gp_multinode_describe(&found, text, sizeof(text), &warning);
    CHECK(!warning);
    CHECK_CONTAINS(text, "card mlx5_1; GPUDirect RDMA is on: by DMA-BUF");
}

TEST(user_settings_are_kept)
{
    const gp_multinode sockets = { .interface = "=eth1", .reason = "" };
    const gp_multinode card = { .interface = "=eth1", .card = "mlx5_1", .direct = true, .reason = "" };

    unsetenv("NCCL_SOCKET_IFNAME");
    setenv("NCCL_SOCKET_NTHREADS", "2", 1);
    gp_multinode_set(&sockets);
    CHECK_TEXT("=eth1", getenv("NCCL_SOCKET_IFNAME"));
    CHECK_TEXT("2", getenv("NCCL_SOCKET_NTHREADS"));
    CHECK_TEXT("4", getenv("NCCL_NSOCKS_PERTHREAD"));
    CHECK(getenv("NCCL_IB_TIMEOUT") == NULL);
    gp_multinode_set(&card);
    CHECK_TEXT("17", getenv("NCCL_IB_TIMEOUT"));
    CHECK_TEXT("SYS", getenv("NCCL_NET_GDR_LEVEL"));
}
