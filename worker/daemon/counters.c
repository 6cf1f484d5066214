#include "worker/daemon/counters.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

void counters_add_steps(counters *c, const gp_train_steps *steps)
{
    for (uint32_t i = 0; i < steps->records_count; i++) {
        const gp_train_record *record = &steps->records[i];

        c->samples += record->samples;
        c->steps++;
        c->data_ms += record->data_ms;
        c->forward_ms += record->forward_ms;
        c->backward_ms += record->backward_ms;
        c->exchange_ms += record->exchange_ms;
        c->commit_ms += record->commit_ms;
        c->wait_ms += record->wait_ms;
    }
}

void counters_add_samples(counters *c, uint32_t samples)
{
    c->samples += samples;
}

void counters_lease(counters *c, bool held, int64_t now_ms)
{
    if (held && c->lease_ms == 0) {
        c->lease_ms = now_ms;
    } else if (!held && c->lease_ms != 0) {
        c->held_ms += now_ms - c->lease_ms;
        c->lease_ms = 0;
    }
}

/* Return the resident memory of this process in bytes; 0: unknown. */
static uint64_t resident_bytes(void)
{
    unsigned long long size, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Return the processor time of all threads of this process in milliseconds. */
static uint64_t processor_ms(void)
{
    struct timespec cpu = { 0 };

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    return (uint64_t)cpu.tv_sec * 1000 + (uint64_t)cpu.tv_nsec / 1000000;
}

void counters_get_usage(counters *c, int64_t now_ms, gp_train_steps *out)
{
    enum { USAGE_MS = 100 }; /* a measurement takes some 20 us */

    out->cpu_ms_total = out->memory_bytes = 0;
    if (now_ms - c->usage_ms < USAGE_MS)
        return;
    c->usage_ms = now_ms;
    out->cpu_ms_total = processor_ms();
    out->memory_bytes = resident_bytes();
}

static uint64_t microseconds(double ms)
{
    return ms > 0 ? (uint64_t)(ms * 1e3) : 0;
}

void counters_get(const counters *c, const gp_train_control *train, int64_t now_ms, gp_beat *out)
{
    out->samples_total = c->samples;
    out->steps_total = c->steps;
    out->data_us_total = microseconds(c->data_ms);
    out->forward_us_total = microseconds(c->forward_ms);
    out->backward_us_total = microseconds(c->backward_ms);
    out->exchange_us_total = microseconds(c->exchange_ms);
    out->commit_us_total = microseconds(c->commit_ms);
    out->wait_us_total = microseconds(c->wait_ms);
    out->calls_total = atomic_load(&train->calls);
    out->cpu_ms_total = processor_ms();
    out->held_ms_total = (uint64_t)(c->held_ms + (c->lease_ms == 0 ? 0 : now_ms - c->lease_ms));
    out->failures_total = c->failures;
    out->memory_bytes = resident_bytes();
    out->device_memory_bytes = atomic_load(&train->device_memory);
}
