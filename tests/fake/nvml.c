/* nvml.c: a fake libnvidia-ml.so.1, controlled by the environment.
 *
 *   FAKE_NVML="hang" | "crash" | "broken"        nvmlInit_v2 hangs, crashes, or fails (no driver)
 *   FAKE_NVML="KEY=VALUE,...;KEY=VALUE,...;..."  one group per GPU, in driver order; "none": no GPU
 *
 * Keys: uuid, name, bus, total, used (MiB), cc (9.0), display (1), mode (compute mode, NVML's
 * number), pid (repeatable), lost (1: no handle), mig (UUID of an instance, repeatable; mig=none:
 * MIG mode without instances). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    CARDS_MAX = 16,
    INSTANCES_MAX = 7,
    PIDS_MAX = 80,
    OK = 0,
    NOT_FOUND = 6,
    TOO_SMALL = 7,
    NO_DRIVER = 9,
    LOST = 15
};

typedef struct unit {
    char uuid[96], name[64], bus[32];
    unsigned long long total, used;
    int major, minor, lost, mig, mode, instance_count, pid_count;
    unsigned display, pids[PIDS_MAX];
    struct unit *instances[INSTANCES_MAX];
} unit;

static unit *cards[CARDS_MAX];
static unsigned card_count;

static unit *unit_new(void)
{
    unit *u = calloc(1, sizeof(unit));

    if (u == NULL)
        abort();
    return u;
}

static void unit_set(unit *u, const char *key, const char *value)
{
    if (strcmp(key, "uuid") == 0)
        snprintf(u->uuid, sizeof(u->uuid), "%s", value);
    else if (strcmp(key, "name") == 0)
        snprintf(u->name, sizeof(u->name), "%s", value);
    else if (strcmp(key, "bus") == 0)
        snprintf(u->bus, sizeof(u->bus), "%s", value);
    else if (strcmp(key, "total") == 0)
        u->total = strtoull(value, NULL, 10) << 20;
    else if (strcmp(key, "used") == 0)
        u->used = strtoull(value, NULL, 10) << 20;
    else if (strcmp(key, "cc") == 0)
        sscanf(value, "%d.%d", &u->major, &u->minor);
    else if (strcmp(key, "display") == 0)
        u->display = value[0] == '1';
    else if (strcmp(key, "mode") == 0)
        u->mode = atoi(value);
    else if (strcmp(key, "lost") == 0)
        u->lost = value[0] == '1';
    else if (strcmp(key, "pid") == 0 && u->pid_count < PIDS_MAX)
        u->pids[u->pid_count++] = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(key, "mig") == 0)
        u->mig = 1;
}

static void card_parse(char *text)
{
    unit *card = unit_new();
    char *rest = NULL;

    for (char *pair = strtok_r(text, ",", &rest); pair != NULL; pair = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(pair, '=');

        if (value == NULL)
            continue;
        *value++ = '\0';
        unit_set(card, pair, value);
        if (strcmp(pair, "mig") == 0 && strcmp(value, "none") != 0 && card->instance_count < INSTANCES_MAX) {
            unit *instance = unit_new();

            snprintf(instance->uuid, sizeof(instance->uuid), "%s", value);
            snprintf(instance->name, sizeof(instance->name), "%.40s MIG 1g.10gb", card->name);
            instance->total = card->total / INSTANCES_MAX;
            card->instances[card->instance_count++] = instance;
        }
    }
    cards[card_count++] = card;
}

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlInit_v2(void)
{
    const char *what = getenv("FAKE_NVML");
    char *text = strdup(what == NULL ? "none" : what), *rest = NULL;

    printf("a driver library that prints on standard output\n");
    fflush(stdout);
    if (strcmp(text, "hang") == 0)
        for (;;)
            pause();
    if (strcmp(text, "crash") == 0) {
        signal(SIGSEGV, SIG_DFL); /* sanitizers turn SIGSEGV into an exit */
        kill(getpid(), SIGSEGV);
    }
    if (strcmp(text, "broken") == 0)
        return NO_DRIVER;
    for (char *card = strtok_r(text, ";", &rest); card != NULL && card_count < CARDS_MAX;
         card = strtok_r(NULL, ";", &rest))
        if (strcmp(card, "none") != 0)
            card_parse(card);
    free(text);
    return OK;
}

EXPORT const char *nvmlErrorString(int code);
EXPORT const char *nvmlErrorString(int code)
{
    return code == NO_DRIVER ? "Driver Not Loaded" : code == LOST ? "GPU is lost" : "Unknown Error";
}

EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned bytes);
EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned bytes)
{
    snprintf(out, bytes, "550.54.15");
    return OK;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = card_count;
    return OK;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, unit **out);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, unit **out)
{
    *out = cards[index];
    return cards[index]->lost ? LOST : OK;
}

EXPORT int nvmlDeviceGetUUID(const unit *u, char *out, unsigned bytes);
EXPORT int nvmlDeviceGetUUID(const unit *u, char *out, unsigned bytes)
{
    snprintf(out, bytes, "%s", u->uuid);
    return OK;
}

EXPORT int nvmlDeviceGetName(const unit *u, char *out, unsigned bytes);
EXPORT int nvmlDeviceGetName(const unit *u, char *out, unsigned bytes)
{
    snprintf(out, bytes, "%s", u->name);
    return OK;
}

EXPORT int nvmlDeviceGetPciInfo_v3(const unit *u, void *out);
EXPORT int nvmlDeviceGetPciInfo_v3(const unit *u, void *out)
{
    struct {
        char legacy[16];
        unsigned numbers[5];
        char bus[32];
    } *pci = out;

    snprintf(pci->bus, sizeof(pci->bus), "%s", u->bus);
    return OK;
}

EXPORT int nvmlDeviceGetMemoryInfo(const unit *u, unsigned long long *out);
EXPORT int nvmlDeviceGetMemoryInfo(const unit *u, unsigned long long *out)
{
    out[0] = u->total;
    out[1] = u->total - u->used;
    out[2] = u->used;
    return OK;
}

EXPORT int nvmlDeviceGetCudaComputeCapability(const unit *u, int *major, int *minor);
EXPORT int nvmlDeviceGetCudaComputeCapability(const unit *u, int *major, int *minor)
{
    *major = u->major;
    *minor = u->minor;
    return OK;
}

EXPORT int nvmlDeviceGetComputeMode(const unit *u, int *mode);
EXPORT int nvmlDeviceGetComputeMode(const unit *u, int *mode)
{
    *mode = u->mode;
    return OK;
}

EXPORT int nvmlDeviceGetDisplayActive(const unit *u, unsigned *active);
EXPORT int nvmlDeviceGetDisplayActive(const unit *u, unsigned *active)
{
    *active = u->display;
    return OK;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const unit *u, unsigned *count, void *out);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const unit *u, unsigned *count, void *out)
{
    struct {
        unsigned pid;
        unsigned long long memory;
        unsigned instance, compute_instance;
    } *processes = out;
    unsigned room = *count;

    *count = (unsigned)u->pid_count;
    if (*count > room)
        return TOO_SMALL;
    for (unsigned i = 0; i < *count; i++)
        processes[i].pid = u->pids[i];
    return OK;
}

EXPORT int nvmlDeviceGetMigMode(const unit *u, unsigned *current, unsigned *pending);
EXPORT int nvmlDeviceGetMigMode(const unit *u, unsigned *current, unsigned *pending)
{
    *current = *pending = (unsigned)u->mig;
    return OK;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(const unit *u, unsigned *count);
EXPORT int nvmlDeviceGetMaxMigDeviceCount(const unit *u, unsigned *count)
{
    *count = u->mig ? INSTANCES_MAX : 0;
    return OK;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(const unit *u, unsigned index, unit **out);
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(const unit *u, unsigned index, unit **out)
{
    if (index >= (unsigned)u->instance_count)
        return NOT_FOUND;
    *out = u->instances[index];
    return OK;
}
