/* Test the worker plan, the pool lock and the epoch. */
#include <sys/stat.h>
#include <unistd.h>

#include "scheduler/shell/pool_lock.h"
#include "scheduler/process/plan.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"

static gp_core_slot_config slots[GP_CORE_SLOTS_MAX];
static gp_device_list devices;
static gp_paths paths;

static gp_plan_cores cores_of(uint32_t count)
{
    gp_plan_cores cores = { .count = count, .physical = count };

    for (uint32_t i = 0; i < count; i++)
        cores.core[i] = (uint16_t)i;
    return cores;
}

static gp_status plan(uint32_t *count, uint32_t workers, const char *list, uint32_t core_count, gp_error *err)
{
    static gp_plan_cores cores;
    gp_plan_request request = { .workers = workers, .devices = list };

    cores = cores_of(core_count);
    return gp_plan_make(slots, count, &request, &devices, &cores, &paths, err);
}

static void two_gpus(void)
{
    memset(&devices, 0, sizeof(devices));
    devices.count = 2;
    for (uint32_t i = 0; i < 2; i++) {
        devices.devices[i].index = i + 1;
        devices.devices[i].ordinal = i;
        snprintf(devices.devices[i].uuid, sizeof(devices.devices[i].uuid), "GPU-%u", i);
        snprintf(devices.devices[i].name, sizeof(devices.devices[i].name), "NVIDIA H200");
    }
}

TEST(cpu_workers_get_equal_shares_of_the_cores)
{
    uint32_t count;
    gp_error err;

    memset(&devices, 0, sizeof(devices));
    REQUIRE_OK(plan(&count, 2, "auto", 8, &err), err);
    CHECK_INT(2, count);
    CHECK_TEXT("0-3", slots[0].cores);
    CHECK_TEXT("4-7", slots[1].cores);
    CHECK_INT(4, slots[1].threads);
    CHECK_TEXT("cpu cores 4-7", slots[1].label);
    REQUIRE_OK(plan(&count, 3, "cpu", 8, &err), err);
    CHECK_TEXT("4-5", slots[2].cores);
}

TEST(default_pool_has_one_worker_per_core_up_to_16)
{
    uint32_t count;
    gp_error err;

    memset(&devices, 0, sizeof(devices));
    REQUIRE_OK(plan(&count, 0, NULL, 4, &err), err);
    CHECK_INT(4, count);
    REQUIRE_OK(plan(&count, 0, NULL, 64, &err), err);
    CHECK_INT(16, count);
    CHECK_TEXT("60-63", slots[15].cores);
}

TEST(workers_are_unpinned_if_there_are_too_few_cores)
{
    uint32_t count;
    gp_error err;

    memset(&devices, 0, sizeof(devices));
    REQUIRE_OK(plan(&count, 3, "auto", 2, &err), err);
    CHECK(slots[2].shared);
    CHECK_TEXT("", slots[2].cores);
}

TEST(default_pool_has_one_worker_per_gpu)
{
    uint32_t count;
    gp_error err;

    two_gpus();
    REQUIRE_OK(plan(&count, 0, "auto", 8, &err), err);
    CHECK_INT(2, count);
    CHECK_INT(GP_CORE_GPU, slots[1].kind);
    CHECK_TEXT("GPU-1", slots[1].uuid);
    REQUIRE_OK(plan(&count, 0, "cuda:1", 8, &err), err);
    CHECK_INT(1, count);
    CHECK_TEXT("GPU-1", slots[0].uuid);
    REQUIRE_OK(plan(&count, 0, "cpu", 8, &err), err);
    CHECK_INT(8, count);
    CHECK_INT(GP_CORE_CPU, slots[0].kind);
}

TEST(auto_excludes_unusable_busy_and_display_gpus)
{
    uint32_t count;
    gp_error err;

    two_gpus();
    devices.devices[0].memory_total = devices.devices[1].memory_total = 16ull << 30;
    devices.devices[0].compute_mode = GP_COMPUTE_PROHIBITED;
    gp_device_judge(&devices.devices[0]);
    REQUIRE_OK(plan(&count, 0, "auto", 8, &err), err);
    REQUIRE(count == 1);
    CHECK_TEXT("GPU-1", slots[0].uuid);
    CHECK_STATUS(GP_ENODEV, plan(&count, 0, "1", 8, &err));
    CHECK_CONTAINS(err.message, "device 1 (NVIDIA H200) is unusable: its compute mode is Prohibited");
    devices.devices[1].display = true; /* the only remaining GPU */
    REQUIRE_OK(plan(&count, 0, "auto", 8, &err), err);
    CHECK_INT(GP_CORE_GPU, slots[0].kind);
    devices.devices[1].process_count = 1;
    devices.devices[1].pids[0] = (uint32_t)getppid();
    devices.devices[1].memory_used = 1ull << 30; /* little memory in use: the GPU is used anyway */
    REQUIRE_OK(plan(&count, 0, "auto", 8, &err), err);
    CHECK_INT(GP_CORE_GPU, slots[0].kind);
    devices.devices[1].memory_used = 8ull << 30;
    REQUIRE_OK(plan(&count, 0, "auto", 8, &err), err);
    CHECK_INT(8, count);
    CHECK_INT(GP_CORE_CPU, slots[0].kind);
    REQUIRE_OK(plan(&count, 0, "2", 8, &err), err);
    CHECK_TEXT("GPU-1", slots[0].uuid);
    devices.devices[0].compute_mode = GP_COMPUTE_DEFAULT;
    gp_device_judge(&devices.devices[0]);
    devices.devices[1].process_count = 0;
    REQUIRE_OK(plan(&count, 0, "auto", 8, &err), err);
    REQUIRE(count == 1); /* the GPU with the display is not needed */
    CHECK_TEXT("GPU-0", slots[0].uuid);
}

TEST(missing_devices_are_refused_with_the_available_ones)
{
    uint32_t count;
    gp_error err;

    two_gpus();
    CHECK_STATUS(GP_ENODEV, plan(&count, 3, "auto", 8, &err));
    CHECK_CONTAINS(err.message, "3 workers requested, but there are 2 GPUs");
    CHECK_STATUS(GP_ENODEV, plan(&count, 0, "1,7", 8, &err));
    CHECK_CONTAINS(err.message, "no device 7: this host has 2 GPUs");
    CHECK_STATUS(GP_EINVAL, plan(&count, 0, "1,cuda:0", 8, &err));
    CHECK_CONTAINS(err.message, "listed twice");
    CHECK_STATUS(GP_EINVAL, plan(&count, GP_CORE_SLOTS_MAX + 1, "cpu", 8, &err));
}

TEST(core_detection_finds_at_least_one_core)
{
    static gp_plan_cores cores;

    gp_plan_find_cores(&cores);
    CHECK(cores.count >= 1 && cores.physical >= 1 && cores.physical <= cores.count);
    CHECK(cores.count <= (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
}

TEST(core_lists_are_sorted_and_truncated)
{
    uint16_t cores[] = { 9, 0, 1, 2, 5 };
    char text[32], small[8];

    CHECK_TEXT("0-2,5,9", gp_plan_format_cores(text, sizeof(text), cores, 5));
    CHECK_TEXT("0-2...", gp_plan_format_cores(small, sizeof(small), cores, 5));
}

/* ---- lock and epoch ---- */

static bool in_a_new_place(char directory[64])
{
    gp_error err;

    snprintf(directory, 64, "/tmp/gp-plan-XXXXXX");
    if (leftovers_make(directory) == NULL)
        return false;
    setenv("GRADPOOL_RUNTIME_DIR", directory, 1);
    setenv("GRADPOOL_STATE_DIR", directory, 1);
    return gp_paths_find(&paths, "default", &err) == GP_OK && gp_paths_create(&paths, &err) == GP_OK;
}

static void remove_place(const char *directory)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    if (system(command) != 0)
        printf("    %s was not removed\n", directory);
}

TEST(pool_has_one_lock_holder_and_epochs_increase)
{
    char directory[64];
    gp_pool_lock first, second;
    gp_error err;

    REQUIRE(in_a_new_place(directory));
    REQUIRE_OK(gp_pool_lock_take(&first, &paths, &err), err);
    CHECK_INT(1, first.epoch);
    CHECK_STATUS(GP_EBUSY, gp_pool_lock_take(&second, &paths, &err));
    gp_pool_lock_release(&first);
    REQUIRE_OK(gp_pool_lock_take(&second, &paths, &err), err);
    CHECK_INT(2, second.epoch);
    gp_pool_lock_release(&second);
    remove_place(directory);
}

TEST(replaced_lock_file_is_detected)
{
    char directory[64];
    gp_pool_lock hold;
    gp_error err;

    REQUIRE(in_a_new_place(directory));
    REQUIRE_OK(gp_pool_lock_take(&hold, &paths, &err), err);
    CHECK(gp_pool_lock_valid(&hold, &paths));
    unlink(paths.lock);
    CHECK(!gp_pool_lock_valid(&hold, &paths));
    gp_pool_lock_release(&hold);
    remove_place(directory);
}

TEST(damaged_epoch_file_does_not_restore_an_old_epoch)
{
    char directory[64], path[300];
    gp_pool_lock hold;
    gp_error err;
    FILE *file;

    REQUIRE(in_a_new_place(directory));
    snprintf(path, sizeof(path), "%s/epoch", paths.state_dir);
    file = fopen(path, "w");
    REQUIRE(file != NULL);
    fputs("12", file); /* torn write: the newline is missing */
    fclose(file);
    REQUIRE_OK(gp_pool_lock_take(&hold, &paths, &err), err);
    CHECK(hold.epoch > 1700000000);
    gp_pool_lock_release(&hold);
    remove_place(directory);
}
