#include <sched.h>
#include <unistd.h>

#include "tests/gp_test.h"
#include "tests/leftovers.h"
#include "common/base/text/text.h"
#include "worker/process/device.h"

TEST(lists_of_cores_are_read_and_written)
{
    int *cores;
    uint32_t count;
    char text[64];
    gp_error err;

    REQUIRE_OK(gp_cores_parse(&cores, &count, "8,0-2,1,10-11", &err), err);
    REQUIRE(count == 6);
    CHECK_INT(0, cores[0]);
    CHECK_INT(8, cores[3]);
    CHECK_INT(11, cores[5]);
    CHECK_TEXT("0-2,8,10-11", gp_ranges_text(text, sizeof(text), cores, count));
    CHECK_TEXT("0-2,8...", gp_ranges_text(text, 10, cores, count));
    gp_free(cores);
    CHECK_EVERY_ALLOCATION(gp_cores_parse(&cores, &count, "0", &err), gp_free(cores));
}

TEST(malformed_core_lists_are_refused)
{
    static const char *const wrong[] = {
        "", "a", "1-", "-1", "2-1", "1,", ",1", "1 2", "4096", "99999999999"
    };
    uint32_t count = 77;
    int *cores;
    gp_error err;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_STATUS(GP_EINVAL, gp_cores_parse(&cores, &count, wrong[i], &err));
        CHECK_CONTAINS(err.message, "0-3,8");
    }
    CHECK_INT(77, count);
}

TEST(cpu_worker_is_pinned_unless_its_cores_are_shared)
{
    gp_worker_device_options options = { .device = "cpu", .pool = "default", .index = 1 };
    char first[16];
    cpu_set_t all, now;
    gp_worker_device device;
    gp_error err;
    int core = 0;

    REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
    while (!CPU_ISSET(core, &all))
        core++;
    snprintf(first, sizeof(first), "%d", core);
    options.cores = first;
    options.shared = true;
    REQUIRE_OK(gp_worker_device_open(&device, &options, &err), err);
    sched_getaffinity(0, sizeof(now), &now);
    CHECK(CPU_EQUAL(&all, &now));
    CHECK_TEXT("", device.cores_text);
    gp_worker_device_close(&device);
    options.shared = false;
    REQUIRE_OK(gp_worker_device_open(&device, &options, &err), err);
    sched_getaffinity(0, sizeof(now), &now);
    CHECK_INT(1, CPU_COUNT(&now));
    CHECK(CPU_ISSET(core, &now));
    CHECK_TEXT(first, device.cores_text);
    CHECK_CONTAINS(device.uuid, "cpu-");
    CHECK(device.name[0] != '\0' && device.excluded[0] == '\0');
    gp_worker_device_close(&device);
    sched_setaffinity(0, sizeof(all), &all);
    options.cores = "4095";
    CHECK_STATUS(GP_EINVAL, gp_worker_device_open(&device, &options, &err));
    CHECK_CONTAINS(err.message, "4095");
}

TEST(of_two_workers_on_one_uuid_the_second_joins_excluded)
{
    char folder[] = "/tmp/gp-device-XXXXXX", command[80];
    gp_worker_device_options options = { .device = "GPU-1",
                                         .name = "NVIDIA H200",
                                         .ordinal = 3,
                                         .shared = true,
                                         .pool = "default",
                                         .device_dir = folder,
                                         .index = 1 };
    gp_worker_device first, second;
    gp_error err;

    REQUIRE(leftovers_make(folder) != NULL);
    REQUIRE_OK(gp_worker_device_open(&first, &options, &err), err);
    CHECK_TEXT("", first.excluded);
    CHECK_INT(GP_DEVICE_CUDA, first.kind);
    CHECK_TEXT("NVIDIA H200", first.name);
    CHECK_INT(3, first.ordinal);
    options.index = 2;
    REQUIRE_OK(gp_worker_device_open(&second, &options, &err), err);
    CHECK_CONTAINS(second.excluded, "device GPU-1 is held by worker 1 of pool default (pid ");
    gp_worker_device_close(&second);
    gp_worker_device_close(&first);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    CHECK(system(command) == 0);
}
