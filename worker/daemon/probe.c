#include "worker/daemon/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/base/text/log.h"
#include "worker/backend/plugin.h"

/* ---- CUDA_VISIBLE_DEVICES ---- */

void gp_probe_filter(gp_device_list *list, const char *visible)
{
    bool keep[GP_DEVICES_MAX] = { false };
    uint32_t kept = 0;

    if (visible == NULL)
        return;
    for (const char *entry = visible; *entry != '\0';) {
        size_t length = strcspn(entry, ",");
        bool named = false;
        char *end;
        long ordinal = strtol(entry, &end, 10); /* an entry is an ordinal or a UUID prefix */

        for (uint32_t i = 0; i < list->count && length > 0; i++) {
            const gp_device *device = &list->devices[i];

            /* An entry for a card in MIG mode matches all instances on the card. */
            if (end == entry + length
                    ? ordinal == (long)device->ordinal
                    : strncasecmp(entry, device->uuid, length) == 0 ||
                          (device->card[0] != '\0' && strncasecmp(entry, device->card, length) == 0))
                named = keep[i] = true;
        }
        if (!named)
            break; /* as in CUDA: "0,-1,1" selects device 0 only */
        entry += length + (entry[length] == ',');
    }
    for (uint32_t i = 0; i < list->count; i++)
        if (keep[i])
            list->devices[kept++] = list->devices[i];
    if (kept < list->count)
        snprintf(list->note, sizeof(list->note), "CUDA_VISIBLE_DEVICES=%.80s hides %u of %u devices", visible,
                 list->count - kept, list->count);
    list->count = kept;
}

/* ---- device order ---- */

static int device_compare(const void *left, const void *right)
{
    const gp_device *a = left, *b = right;
    int order = strcasecmp(a->bus, b->bus); /* fixed-width hexadecimal: text order is bus order */

    /* Keep the driver's order for instances on one card: `index` holds it until gp_probe_run()
     * renumbers. */
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

/* Sort the devices and number the cards in PCI order, which may differ from the driver's order. */
static void list_order(gp_device_list *list)
{
    uint32_t card = 0;

    qsort(list->devices, list->count, sizeof(list->devices[0]), device_compare);
    for (uint32_t i = 0; i < list->count; i++) {
        if (i > 0 && strcasecmp(list->devices[i].bus, list->devices[i - 1].bus) != 0)
            card++;
        list->devices[i].ordinal = card;
    }
}

void gp_probe_run(gp_device_list *out)
{
    char nvml_note[sizeof(out->note)];

    memset(out, 0, sizeof(*out));
    if (gp_probe_nvml(out)) {
        list_order(out);
        gp_probe_filter(out, getenv("CUDA_VISIBLE_DEVICES"));
    } else {
        memcpy(nvml_note, out->note, sizeof(nvml_note));
        memset(out, 0, sizeof(*out));
        if (!gp_probe_cuda(out)) {
            gp_log(GP_LOG_INFO, "probe-note", "%s; %s", nvml_note, out->note);
            memcpy(out->note, nvml_note, sizeof(nvml_note));
            out->count = 0;
        }
        list_order(out); /* the CUDA driver has already applied CUDA_VISIBLE_DEVICES */
    }
    for (uint32_t i = 0; i < out->count; i++) {
        out->devices[i].index = i + 1;
        gp_device_judge(&out->devices[i]);
    }
}

void gp_probe_engine(gp_device_list *list)
{
    const gp_plugin *plugin;
    uint32_t driver = 0, runtime = 0;
    gp_error err;
    gp_status status = list->count == 0 ? GP_OK : gp_plugin_load(&plugin, NULL, &err);

    if (status == GP_OK && list->count != 0)
        status = plugin->driver(&driver, &runtime, &err);
    /* within a major version, a driver runs programs of a newer runtime */
    if (status == GP_OK && driver / 1000 < runtime / 1000)
        status =
            gp_fail(&err, GP_ENODEV,
                    "the driver supports CUDA %u.%u, the GPU engine was built with %u.%u; update the driver",
                    driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    for (uint32_t i = 0; i < list->count && status != GP_OK; i++)
        if (list->devices[i].reason[0] == '\0')
            snprintf(list->devices[i].reason, sizeof(list->devices[i].reason), "%.*s",
                     (int)sizeof(list->devices[i].reason) - 1, err.message);
}

int gp_probe_answer(int output, const gp_buffer *text)
{
    if (!gp_write_all(output, text->data, text->bytes))
        return 1;
    /* Use _exit() rather than exit(): exit handlers of the driver libraries are known to hang. */
    _exit(0);
}

/* Redirect standard output to standard error first: driver libraries may print there, and the
 * reader must receive the JSON list only. */
int gp_probe_main(void)
{
    int output = dup(STDOUT_FILENO);
    gp_device_list *list = gp_calloc(1, sizeof(*list));
    gp_buffer text;
    gp_error err;

    if (output < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || list == NULL)
        return 1;
    gp_buffer_init(&text, GP_DEVICE_LIST_BYTES_MAX);
    gp_probe_run(list);
    gp_probe_engine(list);
    if (gp_device_list_write(list, &text, &err) != GP_OK || gp_buffer_append(&text, "\n", 1, &err) != GP_OK) {
        gp_log(GP_LOG_ERROR, "probe-failed", "%s", err.message);
        return 1;
    }
    return gp_probe_answer(output, &text);
}
