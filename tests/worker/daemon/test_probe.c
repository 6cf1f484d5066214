#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "proto/device/device_probe.h"
#include "tests/gp_test.h"
#include "worker/daemon/probe.h"

/* test_probe.c: the real `gradpool-worker --probe` with fake driver libraries. */
static gp_device_list list;

static gp_status probe(const char *driver, int timeout_ms, gp_error *err)
{
    setenv("GRADPOOL_NVML_LIBRARY", FAKE_NVML_LIBRARY, 1);
    setenv("GRADPOOL_CUDA_LIBRARY", "/nonexistent/libcuda.so.1", 1);
    setenv("FAKE_NVML", driver, 1);
    return gp_device_probe(&list, WORKER_PROGRAM, timeout_ms, err);
}

TEST(devices_are_listed_in_the_order_of_their_pci_bus)
{
    gp_error err;

    unsetenv("CUDA_VISIBLE_DEVICES");
    REQUIRE_OK(probe("uuid=GPU-b,name=NVIDIA H200,bus=00000000:9B:00.0,total=143771,used=512,cc=9.0;"
                     "uuid=GPU-a,name=NVIDIA T4,bus=00000000:1B:00.0,total=15360,cc=7.5,display=1",
                     GP_DEVICE_PROBE_MS, &err),
               err);
    CHECK_INT(GP_DEVICES_FROM_NVML, list.source);
    CHECK_TEXT("550.54.15", list.driver);
    REQUIRE(list.count == 2);
    CHECK_TEXT("GPU-a", list.devices[0].uuid);
    CHECK_INT(1, list.devices[0].index);
    CHECK_INT(0, list.devices[0].ordinal);
    CHECK(list.devices[0].display);
    CHECK_TEXT("GPU-b", list.devices[1].uuid);
    CHECK_TEXT("NVIDIA H200", list.devices[1].name);
    CHECK_TEXT("00000000:9B:00.0", list.devices[1].bus);
    CHECK_INT(2, list.devices[1].index);
    CHECK_INT(1, list.devices[1].ordinal);
    CHECK_INT(143771ll << 20, list.devices[1].memory_total);
    CHECK_INT(512ll << 20, list.devices[1].memory_used);
    CHECK_INT(9, list.devices[1].major);
    CHECK(!list.devices[1].display && !list.devices[1].mig);
}

TEST(gpu_instances_are_devices_with_the_ordinal_of_the_card)
{
    gp_error err;

    unsetenv("CUDA_VISIBLE_DEVICES");
    REQUIRE_OK(probe("uuid=GPU-a,name=A100,bus=00000000:01:00.0,total=81920,cc=8.0,mig=MIG-1,mig=MIG-2;"
                     "uuid=GPU-b,name=A100,bus=00000000:02:00.0,total=81920,cc=8.0;"
                     "uuid=GPU-c,name=A100,bus=00000000:03:00.0,mig=none",
                     GP_DEVICE_PROBE_MS, &err),
               err);
    REQUIRE(list.count == 3);
    CHECK_TEXT("MIG-1", list.devices[0].uuid);
    CHECK_TEXT("GPU-a", list.devices[0].card);
    CHECK_CONTAINS(list.devices[0].name, "1g.10gb");
    CHECK(list.devices[0].mig);
    CHECK_TEXT("MIG-2", list.devices[1].uuid);
    CHECK_INT(0, list.devices[1].ordinal);
    CHECK_INT(2, list.devices[1].index);
    CHECK_TEXT("GPU-b", list.devices[2].uuid);
    CHECK_TEXT("", list.devices[2].card);
    CHECK_INT(1, list.devices[2].ordinal);
}

TEST(device_used_by_other_processes_is_busy)
{
    uint32_t own[] = { 77, 78 };
    char many[1024] = "uuid=GPU-a,bus=1", text[120];
    gp_error err;

    unsetenv("CUDA_VISIBLE_DEVICES");
    REQUIRE_OK(probe("uuid=GPU-a,bus=1,pid=4711,pid=77;uuid=GPU-b,bus=2,pid=78;uuid=GPU-c,bus=3",
                     GP_DEVICE_PROBE_MS, &err),
               err);
    REQUIRE(list.count == 3);
    CHECK(gp_device_busy(&list.devices[0], own, 2, text, sizeof(text)));
    CHECK_TEXT("used by pid 4711", text);
    CHECK(!gp_device_busy(&list.devices[1], own, 2, text, sizeof(text)));
    CHECK(gp_device_busy(&list.devices[1], NULL, 0, text, sizeof(text)));
    CHECK(!gp_device_busy(&list.devices[2], own, 2, text, sizeof(text)));
    for (int i = 0; i < 70; i++) /* more than the probe has room for: the count is known, the names are not */
        strcat(many, ",pid=9");
    REQUIRE_OK(probe(many, GP_DEVICE_PROBE_MS, &err), err);
    CHECK(gp_device_busy(&list.devices[0], NULL, 0, text, sizeof(text)));
    CHECK_CONTAINS(text, "70 processes");
}

TEST(cuda_visible_devices_hides_devices_by_ordinal_uuid_or_its_beginning)
{
    const char *two = "uuid=GPU-abc,bus=1;uuid=GPU-bcd,bus=2,mig=MIG-1,mig=MIG-2";
    gp_error err;

    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    REQUIRE_OK(probe(two, GP_DEVICE_PROBE_MS, &err), err);
    REQUIRE(list.count == 2);
    CHECK_TEXT("MIG-1", list.devices[0].uuid);
    CHECK_INT(1, list.devices[0].index);
    CHECK_CONTAINS(list.note, "CUDA_VISIBLE_DEVICES=1 hides 1 of 3");
    setenv("CUDA_VISIBLE_DEVICES", "MIG-2,GPU-a", 1);
    REQUIRE_OK(probe(two, GP_DEVICE_PROBE_MS, &err), err);
    REQUIRE(list.count == 2);
    CHECK_TEXT("GPU-abc", list.devices[0].uuid);
    CHECK_TEXT("MIG-2", list.devices[1].uuid);
    setenv("CUDA_VISIBLE_DEVICES", "0,-1,1", 1); /* an invalid entry ends the list */
    REQUIRE_OK(probe(two, GP_DEVICE_PROBE_MS, &err), err);
    CHECK_INT(1, list.count);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    REQUIRE_OK(probe(two, GP_DEVICE_PROBE_MS, &err), err);
    CHECK_INT(0, list.count);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(cuda_visible_devices_accepts_minus_one_and_old_instance_names)
{
    const char *two = "uuid=GPU-abc,bus=1,mig=MIG-GPU-abc/1/0,mig=MIG-GPU-abc/2/0;uuid=GPU-bcd,bus=2";
    gp_error err;

    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    REQUIRE_OK(probe(two, GP_DEVICE_PROBE_MS, &err), err);
    CHECK_INT(0, list.count);
    setenv("CUDA_VISIBLE_DEVICES", "MIG-GPU-abc/2/0", 1);
    REQUIRE_OK(probe(two, GP_DEVICE_PROBE_MS, &err), err);
    REQUIRE(list.count == 1);
    CHECK_TEXT("MIG-GPU-abc/2/0", list.devices[0].uuid);
    setenv("CUDA_VISIBLE_DEVICES", "2,0", 1); /* there is no third GPU */
    REQUIRE_OK(probe(two, GP_DEVICE_PROBE_MS, &err), err);
    CHECK_INT(0, list.count);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(unusable_devices_are_listed_with_a_reason)
{
    gp_error err;

    REQUIRE_OK(probe("uuid=GPU-a,bus=1,total=16384,cc=7.5;uuid=GPU-b,bus=2,total=16384,cc=9.0,mode=2;"
                     "uuid=GPU-c,bus=3,total=512,cc=9.0;uuid=GPU-d,bus=4,total=16384,cc=9.0,mode=3,mig=none",
                     GP_DEVICE_PROBE_MS, &err),
               err);
    REQUIRE(list.count == 3);
    CHECK_CONTAINS(list.devices[0].reason, "compute capability 7.5 is too old");
    CHECK_CONTAINS(list.devices[1].reason, "compute mode is Prohibited");
    CHECK_CONTAINS(list.devices[2].reason, "512 MiB");
    CHECK_CONTAINS(list.note, "is in MIG mode without instances");
}

/* Probe with NVML missing. */
static gp_status probe_cuda(const char *devices, gp_error *err)
{
    setenv("GRADPOOL_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1", 1);
    setenv("GRADPOOL_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 1);
    setenv("FAKE_CUDA", devices, 1);
    return gp_device_probe(&list, WORKER_PROGRAM, GP_DEVICE_PROBE_MS, err);
}

TEST(cuda_driver_is_used_without_nvml)
{
    gp_error err;

    REQUIRE_OK(probe_cuda("2", &err), err);
    CHECK_INT(GP_DEVICES_FROM_CUDA, list.source);
    CHECK_TEXT("CUDA 12.4", list.driver);
    CHECK_CONTAINS(list.note, "processes on the devices are unknown");
    REQUIRE(list.count == 2);
    CHECK_TEXT("GPU-10111213-1415-1617-1819-1a1b1c1d1e1f", list.devices[0].uuid);
    CHECK_TEXT("Fake 1", list.devices[0].name);
    CHECK_TEXT("0000:1f:00.0", list.devices[0].bus);
    CHECK_TEXT("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", list.devices[1].uuid);
    CHECK_INT(2, list.devices[1].index);
    CHECK_INT(16ll << 30, list.devices[1].memory_total);
    CHECK_INT(8, list.devices[1].major);
    CHECK_INT(6, list.devices[1].minor);
    REQUIRE_OK(probe_cuda("-803", &err), err);
    CHECK_INT(GP_DEVICES_FROM_NONE, list.source);
    CHECK_INT(0, list.count);
    CHECK_CONTAINS(list.note, "NVML: /nonexistent");
    REQUIRE_OK(probe_cuda("-100", &err), err); /* a driver, but no device */
    CHECK_INT(GP_DEVICES_FROM_CUDA, list.source);
    CHECK_INT(0, list.count);
}

/* The driver gives the UUID of an instance, which CUDA_VISIBLE_DEVICES accepts as MIG-UUID only. */
TEST(uuid_of_a_mig_instance_from_the_cuda_driver_begins_with_mig)
{
    gp_error err;

    setenv("FAKE_CUDA_MIG", "1", 1);
    REQUIRE_OK(probe_cuda("1", &err), err);
    unsetenv("FAKE_CUDA_MIG");
    REQUIRE(list.count == 1);
    CHECK_TEXT("Fake 0 MIG 1g.18gb", list.devices[0].name);
    CHECK_TEXT("MIG-00010203-0405-0607-0809-0a0b0c0d0e0f", list.devices[0].uuid);
    CHECK(list.devices[0].mig);
}

TEST(a_driver_that_hangs_is_killed_and_named)
{
    gp_error err;
    int64_t began = gp_now_ms();

    CHECK_STATUS(GP_ETIMEDOUT, probe("hang", 300, &err));
    CHECK_CONTAINS(err.message,
                   "no reply from the device probe within 0.3 s: the driver may hang; using CPU workers");
    CHECK_CONTAINS(err.message, "--devices cpu");
    CHECK(gp_now_ms() - began >= 300);
}

TEST(a_driver_that_crashes_is_reported_with_its_signal)
{
    gp_error err;

    CHECK_STATUS(GP_EIO, probe("crash", GP_DEVICE_PROBE_MS, &err));
    CHECK_CONTAINS(err.message, "signal 11");
    CHECK_CONTAINS(err.message, "using CPU workers");
}

TEST(failing_driver_gives_no_devices_and_a_reason)
{
    gp_error err;

    REQUIRE_OK(probe("broken", GP_DEVICE_PROBE_MS, &err), err);
    CHECK_INT(GP_DEVICES_FROM_NONE, list.source);
    CHECK_INT(0, list.count);
    CHECK_CONTAINS(list.note, "Driver Not Loaded (code 9)");
}

TEST(lost_gpu_is_excluded_and_named)
{
    gp_error err;

    REQUIRE_OK(probe("uuid=GPU-a,bus=1,lost=1;uuid=GPU-b,bus=2", GP_DEVICE_PROBE_MS, &err), err);
    REQUIRE(list.count == 1);
    CHECK_TEXT("GPU-b", list.devices[0].uuid);
    CHECK_CONTAINS(list.note, "device 0 of the driver is excluded: GPU is lost");
}

TEST(probe_starts_no_child_without_a_driver)
{
    gp_error err;

    unsetenv("GRADPOOL_NVML_LIBRARY");
    unsetenv("GRADPOOL_CUDA_LIBRARY");
    if (gp_device_probe_needed())
        SKIP("this machine has an NVIDIA driver");
    memset(&list, 0xff, sizeof(list));
    REQUIRE_OK(gp_device_probe(&list, "/nonexistent/program", 1000, &err), err);
    CHECK_INT(0, list.count);
    CHECK_INT(GP_DEVICES_FROM_NONE, list.source);
}

TEST(failed_or_malformed_probe_gives_an_error_message)
{
    gp_error err;

    setenv("GRADPOOL_NVML_LIBRARY", FAKE_NVML_LIBRARY, 1);
    CHECK_STATUS(GP_EIO, gp_device_probe(&list, "/nonexistent/program", GP_DEVICE_PROBE_MS, &err));
    CHECK_CONTAINS(err.message, "/nonexistent/program");
    CHECK_STATUS(GP_EPROTO, gp_device_probe(&list, "/bin/echo", GP_DEVICE_PROBE_MS, &err));
    CHECK_CONTAINS(err.message, "device list");
}

/* ---- the device list ---- */

TEST(device_list_survives_a_round_trip)
{
    gp_device_list written = {
        .source = GP_DEVICES_FROM_CUDA, .driver = "CUDA 12.4", .note = "a \"note\"", .count = 2
    };
    gp_device *d = &written.devices[1];
    gp_buffer text;
    gp_error err;

    gp_buffer_init(&text, GP_DEVICE_LIST_BYTES_MAX);
    strcpy(written.devices[0].uuid, "GPU-1");
    written.devices[0].index = 1;
    *d = (gp_device){ .index = 2,
                      .ordinal = 1,
                      .uuid = "MIG-2",
                      .name = "H200",
                      .card = "GPU-2",
                      .bus = "00:1",
                      .memory_total = 1ull << 40,
                      .memory_used = 3,
                      .major = 12,
                      .minor = 1,
                      .mig = true,
                      .display = true,
                      .process_count = 2,
                      .pids = { 4711, 0 } };
    REQUIRE_OK(gp_device_list_write(&written, &text, &err), err);
    memset(&list, 0xff, sizeof(list));
    REQUIRE_OK(gp_device_list_read(&list, gp_buffer_text(&text), text.bytes, &err), err);
    CHECK(memcmp(&list, &written, sizeof(list)) == 0);
    CHECK_EVERY_ALLOCATION(gp_device_list_read(&list, gp_buffer_text(&text), text.bytes, &err), (void)0);
    gp_buffer_deinit(&text);
}

TEST(malformed_device_list_is_refused_and_leaves_the_output_unchanged)
{
    static const struct {
        const char *text, *reported;
    } cases[] = {
        { "[1", "device list" },
        { "[]", "source" },
        { "{\"source\":\"magic\",\"devices\":[]}", "magic" },
        { "{\"source\":\"nvml\"}", "\"devices\" is not an array" },
        { "{\"source\":\"nvml\",\"devices\":[{\"index\":1}]}", "device 1: \"uuid\" is missing" },
        { "{\"source\":\"nvml\",\"devices\":[{\"uuid\":\"a\"}]}", "must be 1 or more" },
        { "{\"source\":\"nvml\",\"devices\":[{\"uuid\":\"a\",\"index\":-1}]}", "\"index\" is -1" },
        { "{\"source\":\"nvml\",\"devices\":[{\"uuid\":\"a\",\"index\":1,\"memory_total\":\"x\"}]}",
          "memory_total" },
    };
    gp_error err;

    list.count = 77;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK_STATUS(GP_EPROTO, gp_device_list_read(&list, cases[i].text, strlen(cases[i].text), &err));
        CHECK_CONTAINS(err.message, cases[i].reported);
    }
    CHECK_INT(77, list.count);
}
