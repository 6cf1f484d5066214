/* probe_nvml.c -- list devices through NVML.
 *
 * The prototypes are declared here because not every toolkit has nvml.h. Functions are resolved one
 * by one: if an old driver lacks a function, only one column is missing. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/daemon/probe.h"

typedef void *nvml_device;

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml_pci {
    char bus_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} nvml_pci;

typedef struct nvml_process {
    unsigned pid;
    unsigned long long memory;
    unsigned instance, compute_instance;
} nvml_process;

enum { NVML_SIZE = 7, NVML_PROCESSES = 64 }; /* NVML_SIZE: NVML_ERROR_INSUFFICIENT_SIZE */

typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*driver)(char *, unsigned);
    const char *(*text)(int);
    int (*count)(unsigned *);
    int (*by_index)(unsigned, nvml_device *);
    int (*uuid)(nvml_device, char *, unsigned);
    int (*name)(nvml_device, char *, unsigned);
    int (*pci)(nvml_device, nvml_pci *);
    int (*memory)(nvml_device, nvml_memory *);
    int (*capability)(nvml_device, int *, int *);
    int (*display)(nvml_device, unsigned *);
    int (*compute_mode)(nvml_device, int *);
    int (*processes)(nvml_device, unsigned *, nvml_process *);
    int (*mig_mode)(nvml_device, unsigned *, unsigned *);
    int (*mig_count)(nvml_device, unsigned *);
    int (*mig_device)(nvml_device, unsigned, nvml_device *);
} nvml;

/* Look up a function, or an older version. Callers store the address through a void pointer, as C
 * has no cast from an object pointer to a function pointer. */
static void *resolve(void *library, const char *name, const char *older)
{
    void *address = dlsym(library, name);

    return address == NULL && older != NULL ? dlsym(library, older) : address;
}

static bool nvml_load(nvml *api, gp_device_list *out)
{
    const char *path = getenv("GRADPOOL_NVML_LIBRARY");

    if (path == NULL || path[0] == '\0')
        path = "libnvidia-ml.so.1";
    api->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (api->library == NULL) {
        snprintf(out->note, sizeof(out->note), "NVML: %.200s", dlerror());
        return false;
    }
#define RESOLVE(slot, symbol, older) (*(void **)&api->slot = resolve(api->library, symbol, older))
    RESOLVE(init, "nvmlInit_v2", "nvmlInit");
    RESOLVE(driver, "nvmlSystemGetDriverVersion", NULL);
    RESOLVE(text, "nvmlErrorString", NULL);
    RESOLVE(count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount");
    RESOLVE(by_index, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex");
    RESOLVE(uuid, "nvmlDeviceGetUUID", NULL);
    RESOLVE(name, "nvmlDeviceGetName", NULL);
    RESOLVE(pci, "nvmlDeviceGetPciInfo_v3", NULL);
    RESOLVE(memory, "nvmlDeviceGetMemoryInfo", NULL);
    RESOLVE(capability, "nvmlDeviceGetCudaComputeCapability", NULL);
    RESOLVE(display, "nvmlDeviceGetDisplayActive", NULL);
    RESOLVE(compute_mode, "nvmlDeviceGetComputeMode", NULL);
    RESOLVE(processes, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2");
    RESOLVE(mig_mode, "nvmlDeviceGetMigMode", NULL);
    RESOLVE(mig_count, "nvmlDeviceGetMaxMigDeviceCount", NULL);
    RESOLVE(mig_device, "nvmlDeviceGetMigDeviceHandleByIndex", NULL);
#undef RESOLVE
    if (api->init == NULL || api->count == NULL || api->by_index == NULL || api->uuid == NULL) {
        snprintf(out->note, sizeof(out->note), "NVML: %.150s is not NVML or is too old", path);
        return false;
    }
    return true;
}

static const char *nvml_text(const nvml *api, int code)
{
    const char *text = api->text == NULL ? NULL : api->text(code);

    return text == NULL ? "unknown error" : text;
}

/* Fill in the fields that a card and a MIG instance have in common. */
static void device_fill(const nvml *api, nvml_device handle, gp_device *device)
{
    nvml_memory memory;
    nvml_process processes[NVML_PROCESSES];
    unsigned count = NVML_PROCESSES;
    char name[GP_DEVICE_TEXT];

    if (api->name != NULL && api->name(handle, name, sizeof(name)) == 0)
        snprintf(device->name, sizeof(device->name), "%s", name);
    if (api->memory != NULL && api->memory(handle, &memory) == 0) {
        device->memory_total = memory.total;
        device->memory_used = memory.used;
    }
    if (api->processes == NULL)
        return;
    switch (api->processes(handle, &count, processes)) {
    case 0:
        for (unsigned i = 0; i < count && i < GP_DEVICE_PIDS_MAX; i++)
            device->pids[i] = processes[i].pid;
        device->process_count = count;
        break;
    case NVML_SIZE: /* `count` is set to the required number of entries */
        device->process_count = count;
        break;
    default:
        break;
    }
}

static void card_fill(const nvml *api, nvml_device handle, gp_device *card)
{
    nvml_pci pci;
    unsigned active = 0;
    int major = 0, minor = 0, mode = GP_COMPUTE_UNKNOWN;

    device_fill(api, handle, card);
    if (api->compute_mode == NULL || api->compute_mode(handle, &mode) != 0 || mode < 0 ||
        mode > GP_COMPUTE_UNKNOWN)
        mode = GP_COMPUTE_UNKNOWN;
    card->compute_mode = (gp_compute_mode)mode;
    if (api->pci != NULL && api->pci(handle, &pci) == 0)
        snprintf(card->bus, sizeof(card->bus), "%.31s", pci.bus_id);
    if (api->capability != NULL && api->capability(handle, &major, &minor) == 0) {
        card->major = (uint32_t)major;
        card->minor = (uint32_t)minor;
    }
    card->display = api->display != NULL && api->display(handle, &active) == 0 && active != 0;
}

/* Add the instances of a card in MIG mode. false: the card is not in MIG mode. A card in MIG
 * mode without instances adds no device, because nothing can compute on it. */
static bool instances_add(const nvml *api, nvml_device handle, const gp_device *card, gp_device_list *out)
{
    unsigned mode = 0, pending, most = 0;
    nvml_device instance;
    bool found = false;

    if (api->mig_mode == NULL || api->mig_count == NULL || api->mig_device == NULL ||
        api->mig_mode(handle, &mode, &pending) != 0 || mode == 0 || api->mig_count(handle, &most) != 0)
        return false;
    for (unsigned i = 0; i < most && out->count < GP_DEVICES_MAX; i++) {
        gp_device *device = &out->devices[out->count];

        if (api->mig_device(handle, i, &instance) != 0)
            continue; /* instance numbers may have gaps */
        *device = *card;
        device->mig = true;
        device->process_count = 0;
        memcpy(device->card, card->uuid, sizeof(device->card));
        if (api->uuid(instance, device->uuid, sizeof(device->uuid)) != 0)
            continue;
        device_fill(api, instance, device);
        device->index = out->count++;
        found = true;
    }
    if (!found)
        snprintf(
            out->note, sizeof(out->note),
            "%.60s (%.60s) is in MIG mode without instances; create them with nvidia-smi mig -cgi PROFILE -C",
            card->name, card->uuid);
    return true;
}

bool gp_probe_nvml(gp_device_list *out)
{
    nvml api = { 0 };
    nvml_device handle;
    unsigned count = 0;
    int code;

    if (!nvml_load(&api, out))
        return false;
    code = api.init();
    if (code == 0)
        code = api.count(&count);
    if (code != 0) {
        snprintf(out->note, sizeof(out->note), "NVML: %.150s (code %d)", nvml_text(&api, code), code);
        return false;
    }
    out->source = GP_DEVICES_FROM_NVML;
    if (api.driver != NULL && api.driver(out->driver, sizeof(out->driver)) != 0)
        out->driver[0] = '\0';
    for (unsigned i = 0; i < count && out->count < GP_DEVICES_MAX; i++) {
        gp_device card = { 0 };

        code = api.by_index(i, &handle);
        if (code == 0)
            code = api.uuid(handle, card.uuid, sizeof(card.uuid));
        if (code != 0) {
            snprintf(out->note, sizeof(out->note), "device %u of the driver is excluded: %.150s (code %d)", i,
                     nvml_text(&api, code), code);
            continue;
        }
        card_fill(&api, handle, &card);
        if (instances_add(&api, handle, &card, out))
            continue;
        card.index = out->count;
        out->devices[out->count++] = card;
    }
    return true;
}
