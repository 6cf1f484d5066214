/* cuda.c: a fake libcuda.so.1. FAKE_CUDA is the number of devices, or a negative value: every call
 * fails with that code. If FAKE_CUDA_MIG is set, devices are instances of cards in MIG mode. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static int fake_number(void)
{
    const char *text = getenv("FAKE_CUDA");

    return text == NULL ? 0 : atoi(text);
}

EXPORT int cuInit(unsigned flags);
EXPORT int cuInit(unsigned flags)
{
    (void)flags;
    return fake_number() < 0 ? -fake_number() : 0;
}

EXPORT int cuGetErrorString(int code, const char **text);
EXPORT int cuGetErrorString(int code, const char **text)
{
    *text = code == 803 ? "system has unsupported display driver / cuda driver combination" : NULL;
    return 0;
}

EXPORT int cuDriverGetVersion(int *version);
EXPORT int cuDriverGetVersion(int *version)
{
    *version = 12040;
    return 0;
}

EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDeviceGetCount(int *count)
{
    *count = fake_number();
    return 0;
}

EXPORT int cuDeviceGet(int *device, int ordinal);
EXPORT int cuDeviceGet(int *device, int ordinal)
{
    *device = 100 + ordinal;
    return 0;
}

EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int device);
EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    for (int i = 0; i < 16; i++)
        uuid[i] = (unsigned char)(16 * (device - 100) + i);
    return 0;
}

EXPORT int cuDeviceGetName(char *name, int bytes, int device);
EXPORT int cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "Fake %d%s", device - 100,
             getenv("FAKE_CUDA_MIG") == NULL ? "" : " MIG 1g.18gb");
    return 0;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device);
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)16 << 30;
    return 0;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 75 ? 8 : attribute == 76 ? 6 : 0;
    return 0;
}

EXPORT int cuDeviceGetPCIBusId(char *bus, int bytes, int device);
EXPORT int cuDeviceGetPCIBusId(char *bus, int bytes, int device)
{
    /* later devices have lower PCI addresses */
    snprintf(bus, (size_t)bytes, "0000:%02x:00.0", 0x20 - (device - 100));
    return 0;
}
