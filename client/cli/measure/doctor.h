/* Shared declarations for `gradpool doctor`: checks, results and suggested fixes.
 *
 *   doctor_host.c   limits, shared memory, container, clock, directories
 *   doctor_gpu.c    driver, devices, GPU engine and libraries, transfers between devices */
#ifndef GP_CLI_DOCTOR_H
#define GP_CLI_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text/json.h"
#include "proto/device/device_list.h"

typedef enum doctor_state { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_FAILURE } doctor_state;

enum { DOCTOR_ROWS_MAX = 256, DOCTOR_PEERS_MAX = 16 };

/* A check: subject, finding, and suggested fix. */
typedef struct doctor_row {
    doctor_state state;
    char what[48], found[240], fix[240]; /* fix: suggested fix; "": not needed */
} doctor_row;

/* All results. */
typedef struct doctor {
    doctor_row rows[DOCTOR_ROWS_MAX];
    uint32_t count;
    /* transfer rates between devices in bytes/s, by ordinal; 0: not measured */
    uint32_t devices;
    double peer[DOCTOR_PEERS_MAX][DOCTOR_PEERS_MAX];
    bool direct[DOCTOR_PEERS_MAX][DOCTOR_PEERS_MAX];
    char versions[160];
} doctor;

/* Append a result with a formatted finding; drop it after DOCTOR_ROWS_MAX.
 *   what  subject of the check
 *   fix   suggested fix; NULL: none */
void doctor_add(doctor *d, doctor_state state, const char *what, const char *fix, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Facts about the host. 0: unknown, unless stated otherwise. */
typedef struct doctor_host {
    uint64_t shm_bytes, shm_free;                 /* /dev/shm size and free space */
    bool shm;                                     /* /dev/shm exists */
    uint64_t memlock, nofile, nofile_hard, nproc; /* resource limits; UINT64_MAX: unlimited */
    char container[24];                           /* e.g. "docker"; "": none detected */
    /* machine memory, and cgroup limit; UINT64_MAX: no limit */
    uint64_t memory, memory_limit;
    /* cores: usable by this process; cpu_quota: cgroup CPU time, in cores; UINT32_MAX: no limit */
    uint32_t cores, cpu_quota;
    int clock_synchronised; /* -1: unknown */
    int year;
    char clocksource[32];
    char paths[240];     /* error about the pool directories; "": no error */
    uint64_t state_free; /* free space in the state directory, in bytes */
    char state_dir[160];
} doctor_host;

/* Read the facts.
 *   pool  name of the pool whose directories are checked; NULL: default */
void doctor_host_read(doctor_host *host, const char *pool);

/* Judge the facts and append results.
 *   gpus  GPUs available to workers */
void doctor_host_check(doctor *d, const doctor_host *host, uint32_t gpus);

/* Judge driver, devices and GPU engine, and append results.
 *   list          devices found by the probe
 *   problem       why the probe failed; "": it succeeded
 *   driver_there  an NVIDIA driver is installed
 *   examined      result of gp_device_selftest(); NULL: not run */
void doctor_gpu_check(doctor *d, const gp_device_list *list, const char *problem, bool driver_there,
                      bool container, const gp_json *examined);

#endif
