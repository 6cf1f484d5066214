/* doctor.h -- inside `gradpool doctor`: what was looked at, what was found, and how to mend it.
 *
 *   doctor_host.c   limits, shared memory, container, clock, places: facts are read, then judged
 *   doctor_gpu.c    driver, devices, the GPU engine and its libraries, from device to device */
#ifndef GP_CLI_DOCTOR_H
#define GP_CLI_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text/json.h"
#include "proto/device/device_list.h"

typedef enum doctor_state { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_FAILURE } doctor_state;

enum { DOCTOR_ROWS_MAX = 256, DOCTOR_PEERS_MAX = 16 };

typedef struct doctor_row {
    doctor_state state;
    char what[48], found[240], fix[240]; /* fix: "" where there is nothing to mend */
} doctor_row;

typedef struct doctor {
    doctor_row rows[DOCTOR_ROWS_MAX];
    uint32_t count;
    /* Bytes a second from device to device; 0: not measured.  By ordinal. */
    uint32_t devices;
    double peer[DOCTOR_PEERS_MAX][DOCTOR_PEERS_MAX];
    bool direct[DOCTOR_PEERS_MAX][DOCTOR_PEERS_MAX];
    char versions[160];
} doctor;

/* A row; `fix` may be NULL. */
void doctor_add(doctor *d, doctor_state state, const char *what, const char *fix, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* What is known of the host; 0 is "not known" unless said otherwise. */
typedef struct doctor_host {
    uint64_t shm_bytes, shm_free;                 /* of /dev/shm */
    bool shm;                                     /* there is one */
    uint64_t memlock, nofile, nofile_hard, nproc; /* limits; UINT64_MAX: none */
    char container[24];                           /* "docker", ...; "": none that shows */
    uint64_t memory, memory_limit;                /* of the machine; of the cgroup, UINT64_MAX: none */
    uint32_t cores, cpu_quota; /* that we may use; whole cores' time a cgroup gives, UINT32_MAX: no limit */
    int clock_synchronised;    /* -1: not known */
    int year;
    char clocksource[32];
    char places[240];    /* what is wrong with where pools live; "": nothing */
    uint64_t state_free; /* bytes, where jobs and logs are kept */
    char state_dir[160];
} doctor_host;

/* pool: its name, for the directories that it would use; NULL: default */
void doctor_host_read(doctor_host *host, const char *pool);
/* gpus: that workers could have. */
void doctor_host_judge(doctor *d, const doctor_host *host, uint32_t gpus);

/* list: of the probe; problem: why there is none ("": there is).  examined: of gp_device_examine(), or NULL. */
void doctor_gpu_judge(doctor *d, const gp_device_list *list, const char *problem, bool driver_there,
                      bool container, const gp_json *examined);

#endif
