/* Read, write and assess lists of GPUs (device_list.h). */
#include "proto/device/device_list.h"

#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"

static const char *const source_names[] = { "none", "nvml", "cuda" };
static const char *const mode_names[] = { "default", "exclusive-thread", "prohibited", "exclusive-process",
                                          "" };

static void device_write(gp_json_writer *writer, const gp_device *device)
{
    char capability[24] = "";
    uint32_t named = device->process_count < GP_DEVICE_PIDS_MAX ? device->process_count : GP_DEVICE_PIDS_MAX;

    if (device->major != 0)
        snprintf(capability, sizeof(capability), "%u.%u", device->major, device->minor);
    gp_json_begin_object(writer, NULL);
    gp_json_put_integer(writer, "index", device->index);
    gp_json_put_integer(writer, "ordinal", device->ordinal);
    gp_json_put_text(writer, "uuid", device->uuid);
    gp_json_put_text(writer, "name", device->name);
    gp_json_put_text(writer, "bus", device->bus);
    gp_json_put_text(writer, "card", device->card);
    gp_json_put_bool(writer, "mig", device->mig);
    gp_json_put_integer(writer, "memory_total", (int64_t)device->memory_total);
    gp_json_put_integer(writer, "memory_used", (int64_t)device->memory_used);
    gp_json_put_text(writer, "compute_capability", capability);
    gp_json_put_bool(writer, "display", device->display);
    gp_json_put_text(writer, "compute_mode", mode_names[device->compute_mode]);
    gp_json_put_bool(writer, "available", device->reason[0] == '\0');
    gp_json_put_text(writer, "reason", device->reason);
    gp_json_put_integer(writer, "processes", device->process_count);
    gp_json_begin_array(writer, "pids");
    for (uint32_t i = 0; i < named; i++)
        gp_json_put_integer(writer, NULL, device->pids[i]);
    gp_json_end_array(writer);
    gp_json_put_text(writer, "pool", device->pool);
    gp_json_put_integer(writer, "worker", device->worker);
    gp_json_end_object(writer);
}

gp_status gp_device_list_write(const gp_device_list *list, gp_buffer *out, gp_error *err)
{
    gp_json_writer writer;

    gp_json_writer_init(&writer, out, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_text(&writer, "source", source_names[list->source]);
    gp_json_put_text(&writer, "driver", list->driver);
    gp_json_put_text(&writer, "note", list->note);
    gp_json_begin_array(&writer, "devices");
    for (uint32_t i = 0; i < list->count; i++)
        device_write(&writer, &list->devices[i]);
    gp_json_end_array(&writer);
    gp_json_end_object(&writer);
    return gp_json_writer_finish(&writer, err);
}

/* ---- reading ---- */

/* Copy a text member; truncate it if it does not fit. */
static void read_text(const gp_json *object, const char *key, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", gp_json_text(gp_json_member(object, key), ""));
}

/* Read an integer member in [0, max]; a missing member is 0. */
static gp_status read_count(const gp_json *object, const char *key, int64_t max, uint64_t *out, gp_error *err)
{
    const gp_json *member = gp_json_member(object, key);
    int64_t value = gp_json_integer(member, member == NULL ? 0 : -1);

    if (value < 0 || value > max)
        return gp_fail(err, GP_EPROTO, "\"%s\" is %lld; must be between 0 and %lld", key, (long long)value,
                       (long long)max);
    *out = (uint64_t)value;
    return GP_OK;
}

static gp_status read_u32(const gp_json *object, const char *key, uint32_t max, uint32_t *out, gp_error *err)
{
    uint64_t value = 0;
    gp_status status = read_count(object, key, max, &value, err);

    if (status == GP_OK)
        *out = (uint32_t)value;
    return status;
}

/* Read one device. GP_EPROTO: no uuid, no index, or a number out of range. */
static gp_status device_read(gp_device *device, const gp_json *object, gp_error *err)
{
    const gp_json *pids = gp_json_member(object, "pids");
    const char *mode = gp_json_text(gp_json_member(object, "compute_mode"), "");
    gp_status status;

    memset(device, 0, sizeof(*device));
    read_text(object, "uuid", device->uuid, sizeof(device->uuid));
    if (device->uuid[0] == '\0')
        return gp_fail(err, GP_EPROTO, "\"uuid\" is missing");
    read_text(object, "name", device->name, sizeof(device->name));
    read_text(object, "bus", device->bus, sizeof(device->bus));
    read_text(object, "card", device->card, sizeof(device->card));
    device->mig = gp_json_bool(gp_json_member(object, "mig"), false);
    device->display = gp_json_bool(gp_json_member(object, "display"), false);
    while (device->compute_mode < GP_COMPUTE_UNKNOWN && strcmp(mode, mode_names[device->compute_mode]) != 0)
        device->compute_mode++;
    read_text(object, "reason", device->reason, sizeof(device->reason));
    read_text(object, "pool", device->pool, sizeof(device->pool));
    if ((status = read_u32(object, "index", GP_DEVICES_MAX, &device->index, err)) != GP_OK ||
        (status = read_u32(object, "ordinal", GP_DEVICES_MAX, &device->ordinal, err)) != GP_OK ||
        (status = read_u32(object, "processes", 1 << 22, &device->process_count, err)) != GP_OK ||
        (status = read_u32(object, "worker", GP_DEVICES_MAX, &device->worker, err)) != GP_OK ||
        (status = read_count(object, "memory_total", INT64_MAX, &device->memory_total, err)) != GP_OK ||
        (status = read_count(object, "memory_used", INT64_MAX, &device->memory_used, err)) != GP_OK)
        return status;
    if (device->index == 0)
        return gp_fail(err, GP_EPROTO, "\"index\" is missing or 0; must be 1 or more");
    if (sscanf(gp_json_text(gp_json_member(object, "compute_capability"), ""), "%3u.%3u", &device->major,
               &device->minor) != 2)
        device->major = device->minor = 0;
    for (size_t i = 0; gp_json_is_array(pids) && i < gp_json_count(pids) && i < GP_DEVICE_PIDS_MAX; i++) {
        int64_t pid = gp_json_integer(gp_json_element(pids, i), 0);

        device->pids[i] = pid > 0 && pid <= INT32_MAX ? (uint32_t)pid : 0;
    }
    return GP_OK;
}

static gp_status list_read(gp_device_list *list, const gp_json *document, gp_error *err)
{
    const gp_json *devices = gp_json_member(document, "devices");
    const char *source = gp_json_text(gp_json_member(document, "source"), "");

    for (int i = GP_DEVICES_FROM_NONE;; i++) {
        if (i > GP_DEVICES_FROM_CUDA)
            return gp_fail(err, GP_EPROTO, "device list: \"source\" is \"%.40s\"; must be none, nvml or cuda",
                           source);
        if (strcmp(source, source_names[i]) == 0) {
            list->source = (gp_device_source)i;
            break;
        }
    }
    if (!gp_json_is_array(devices))
        return gp_fail(err, GP_EPROTO, "device list: \"devices\" is not an array");
    if (gp_json_count(devices) > GP_DEVICES_MAX)
        return gp_fail(err, GP_ELIMIT, "device list: %zu devices; at most %d are supported",
                       gp_json_count(devices), GP_DEVICES_MAX);
    read_text(document, "driver", list->driver, sizeof(list->driver));
    read_text(document, "note", list->note, sizeof(list->note));
    for (size_t i = 0; i < gp_json_count(devices); i++) {
        gp_status status = device_read(&list->devices[i], gp_json_element(devices, i), err);

        if (status != GP_OK) {
            gp_error_prefix(err, "device list: device %zu", i + 1);
            return status;
        }
        list->count++;
    }
    return GP_OK;
}

gp_status gp_device_list_read(gp_device_list *out, const char *text, size_t bytes, gp_error *err)
{
    gp_device_list *list;
    gp_json *document;
    gp_status status;

    if (bytes > GP_DEVICE_LIST_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "device list: %zu bytes; at most %d are allowed", bytes,
                       GP_DEVICE_LIST_BYTES_MAX);
    status = gp_json_parse(&document, text, bytes, err);
    if (status != GP_OK) {
        gp_error_prefix(err, "device list");
        if (status == GP_ENOMEM)
            return status;
        if (err != NULL)
            err->code = GP_EPROTO;
        return GP_EPROTO;
    }
    list = gp_calloc(1, sizeof(*list)); /* too large for a thread stack */
    if (list == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a device list");
    else
        status = list_read(list, document, err);
    if (status == GP_OK)
        *out = *list;
    gp_free(list);
    gp_json_free(document);
    return status;
}

void gp_device_judge(gp_device *device)
{
    const uint64_t mib = device->memory_total >> 20;

    device->reason[0] = '\0';
    if (device->compute_mode == GP_COMPUTE_PROHIBITED)
        snprintf(device->reason, sizeof(device->reason),
                 "its compute mode is Prohibited; as administrator run: nvidia-smi -i %.31s -c DEFAULT",
                 device->bus);
    else if (device->major != 0 && device->major < GP_DEVICE_CAPABILITY_MIN)
        snprintf(device->reason, sizeof(device->reason),
                 "its compute capability %u.%u is too old: the GPU engine needs %d.0 or newer", device->major,
                 device->minor, GP_DEVICE_CAPABILITY_MIN);
    else if (device->memory_total != 0 && mib < GP_DEVICE_MEMORY_MIN_MIB)
        snprintf(device->reason, sizeof(device->reason),
                 "it has %u MiB of memory: the GPU engine needs %d MiB", (unsigned)mib,
                 GP_DEVICE_MEMORY_MIN_MIB);
}

bool gp_device_busy(const gp_device *device, const uint32_t *own, uint32_t count, char *text, size_t bytes)
{
    uint32_t others = device->process_count, named = 0;

    for (uint32_t i = 0; i < device->process_count && i < GP_DEVICE_PIDS_MAX; i++) {
        bool ours = false;

        for (uint32_t j = 0; j < count && !ours; j++)
            ours = device->pids[i] == own[j];
        if (ours)
            others--;
        else if (named == 0)
            named = device->pids[i];
    }
    if (others == 0)
        return false;
    if (named == 0)
        snprintf(text, bytes, "used by %u process%s of another container or user", others,
                 others == 1 ? "" : "es");
    else if (others == 1)
        snprintf(text, bytes, "used by pid %u", named);
    else
        snprintf(text, bytes, "used by pid %u and %u other%s", named, others - 1, others == 2 ? "" : "s");
    return true;
}
