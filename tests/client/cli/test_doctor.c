/* test_doctor.c: verdicts by `gradpool doctor` on simulated hosts and GPUs. */
#include "client/cli/measure/doctor.h"
#include "tests/gp_test.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static doctor d;

static doctor_host healthy(void)
{
    return (doctor_host){ .shm = true,
                          .shm_bytes = 16 * GIB,
                          .shm_free = 16 * GIB,
                          .memlock = UINT64_MAX,
                          .nofile = 65536,
                          .nofile_hard = 65536,
                          .nproc = 65536,
                          .memory = 64 * GIB,
                          .memory_limit = UINT64_MAX,
                          .cores = 8,
                          .cpu_quota = UINT32_MAX,
                          .clock_synchronised = 1,
                          .year = 2026,
                          .clocksource = "tsc",
                          .state_free = 100 * GIB,
                          .state_dir = "/home/me/.local/state/gradpool" };
}

static const doctor_row *row_of(const char *what)
{
    for (uint32_t i = 0; i < d.count; i++)
        if (strcmp(d.rows[i].what, what) == 0)
            return &d.rows[i];
    return NULL;
}

/* Judge the host, then check that row `what` has that state and a fix containing `fix`. */
static void host_gives(const doctor_host *host, uint32_t gpus, const char *what, doctor_state state,
                       const char *fix)
{
    const doctor_row *row;

    memset(&d, 0, sizeof(d));
    doctor_host_check(&d, host, gpus);
    row = row_of(what);
    REQUIRE(row != NULL);
    if (row->state != state)
        GP_TEST_FAIL("%s is in state %d, expected %d: %s", what, (int)row->state, (int)state, row->found);
    CHECK_CONTAINS(row->fix, fix);
    CHECK(state < DOCTOR_WARNING || row->fix[0] != '\0');
}

TEST(healthy_host_needs_no_fix)
{
    doctor_host host = healthy();

    memset(&d, 0, sizeof(d));
    doctor_host_check(&d, &host, 8);
    CHECK(d.count >= 8);
    for (uint32_t i = 0; i < d.count; i++) {
        CHECK(d.rows[i].state <= DOCTOR_NOTE);
        CHECK_TEXT("", d.rows[i].fix);
    }
}

TEST(shared_memory_of_a_container_is_too_small_for_nccl_but_not_for_one_gpu)
{
    doctor_host host = healthy();

    host.shm_bytes = host.shm_free = 64 * MIB; /* default of Docker */
    strcpy(host.container, "docker");
    host_gives(&host, 2, "/dev/shm", DOCTOR_FAILURE, "--shm-size=8g (or --ipc=host)");
    host_gives(&host, 1, "/dev/shm", DOCTOR_OK, "");
    strcpy(host.container, "kubernetes");
    host_gives(&host, 2, "/dev/shm", DOCTOR_FAILURE, "emptyDir of medium Memory");
    host.shm = false;
    host_gives(&host, 0, "/dev/shm", DOCTOR_WARNING, "emptyDir");
}

TEST(low_limits_are_reported_with_a_fix)
{
    doctor_host host = healthy();

    host.nofile = 1024;
    host_gives(&host, 0, "open files (nofile)", DOCTOR_WARNING, "ulimit -n 65536");
    host.nofile_hard = 1024;
    host_gives(&host, 0, "open files (nofile)", DOCTOR_WARNING, "limits.conf");
    strcpy(host.container, "docker");
    host_gives(&host, 0, "open files (nofile)", DOCTOR_WARNING, "--ulimit nofile=65536");
    host.nproc = 100;
    host_gives(&host, 0, "processes (nproc)", DOCTOR_WARNING, "--pids-limit");
    host.memlock = 65536;
    host_gives(&host, 1, "locked memory (memlock)", DOCTOR_OK, "");
    host_gives(&host, 4, "locked memory (memlock)", DOCTOR_WARNING, "--ulimit memlock=-1");
}

TEST(cgroup_limits_below_the_host_are_reported)
{
    doctor_host host = healthy();

    host.cpu_quota = 2;
    host_gives(&host, 0, "cores", DOCTOR_WARNING, "cpuset");
    host.memory_limit = GIB;
    host_gives(&host, 0, "memory", DOCTOR_WARNING, "memory.max");
    host.memory_limit = 8 * GIB;
    host_gives(&host, 0, "memory", DOCTOR_NOTE, "");
}

TEST(wrong_clock_and_unusable_folder_fail)
{
    doctor_host host = healthy();

    host.year = 1970;
    host_gives(&host, 0, "clock", DOCTOR_FAILURE, "timedatectl");
    host.clocksource[0] = '\0';
    strcpy(host.paths, "/run/user/0/gradpool is another user's");
    host_gives(&host, 0, "pool directories", DOCTOR_FAILURE, "GRADPOOL_RUNTIME_DIR");
    host = healthy();
    strcpy(host.clocksource, "hpet");
    host_gives(&host, 0, "clock source", DOCTOR_WARNING, "tsc");
}

/* ---- GPUs ---- */

TEST(each_driver_error_has_a_fix)
{
    static const struct {
        const char *said, *fix;
        bool container;
    } cases[] = {
        { "NVML: Driver/library version mismatch (code 18)", "different versions", false },
        { "NVML: Driver Not Loaded (code 9)", "modprobe nvidia", false },
        { "no reply from the device probe within 10 s: the driver may hang", "restart the machine", false },
        { "NVML: libnvidia-ml.so.1: cannot open shared object file", "--gpus all", true },
        { "NVML: libnvidia-ml.so.1: cannot open shared object file", "nvidia-smi must work", false },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static gp_device_list list;

        memset(&d, 0, sizeof(d));
        memset(&list, 0, sizeof(list));
        snprintf(list.note, sizeof(list.note), "%s", cases[i].said);
        doctor_gpu_check(&d, &list, "", true, cases[i].container, NULL);
        const doctor_row *row = row_of("driver");

        REQUIRE(row != NULL);
        CHECK_INT(DOCTOR_FAILURE, row->state);
        CHECK_TEXT(cases[i].said, row->found);
        CHECK_CONTAINS(row->fix, cases[i].fix);
    }
}

TEST(slow_or_missing_peer_links_are_reported)
{
    static const char *const texts[] = {
        "{\"driver\": 13000, \"runtime\": 13000, \"peers\": [{\"from\": 0, \"to\": 1, \"direct\": true, "
        "\"bytes_per_second\": 4e11, \"problem\": \"\"}]}",
        "{\"driver\": 13000, \"runtime\": 13000, \"peers\": [{\"from\": 0, \"to\": 1, \"direct\": false, "
        "\"bytes_per_second\": 9e9, \"problem\": \"\"}]}",
        "{\"driver\": 12040, \"runtime\": 13000, \"peers\": [{\"from\": 0, \"to\": 1, \"direct\": true, "
        "\"bytes_per_second\": 0, \"problem\": \"peer access is not supported\"}]}",
    };
    static const doctor_state states[] = { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_FAILURE };
    static gp_device_list list = { .source = GP_DEVICES_FROM_NVML, .driver = "580.1", .count = 2 };

    for (size_t i = 0; i < 3; i++) {
        gp_json *json;
        gp_error err;

        memset(&d, 0, sizeof(d));
        REQUIRE_OK(gp_json_parse(&json, texts[i], strlen(texts[i]), &err), err);
        doctor_gpu_check(&d, &list, "", true, false, json);
        gp_json_free(json);
        REQUIRE(row_of("GPU peer copies") != NULL);
        CHECK_INT(states[i], row_of("GPU peer copies")->state);
        CHECK_INT(2, d.devices);
        CHECK_INT(i == 2 ? DOCTOR_FAILURE : DOCTOR_OK, row_of("driver and runtime")->state);
    }
}

TEST(missing_driver_is_a_note_and_no_failure)
{
    static gp_device_list list;

    memset(&d, 0, sizeof(d));
    doctor_gpu_check(&d, &list, "", false, false, NULL);
    CHECK_INT(1, d.count);
    CHECK_INT(DOCTOR_NOTE, d.rows[0].state);
}
