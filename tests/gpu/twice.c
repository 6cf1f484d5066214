/* twice.c: wraps libnvidia-ml and lists each GPU several times, under prefixes of its UUID.
 *
 * Each prefix is one character shorter than the last, and the first already lacks one character.
 * CUDA accepts a unique prefix as UUID, so a machine with one GPU can run a pool with several GPU
 * workers. For tests that need two workers, never for measurements.
 *
 *   GRADPOOL_NVML_LIBRARY=.../libgpu_twice.so GRADPOOL_GPU_TIMES=2 gradpool up */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES_MAX = 8, CARDS_MAX = 16 };

typedef struct handle {
    void *real;
    unsigned shorter; /* characters removed from the UUID */
} handle;

static handle handles[CARDS_MAX * TIMES_MAX];

static void *real(const char *symbol)
{
    static void *library;

    if (library == NULL)
        library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    return library == NULL ? NULL : dlsym(library, symbol);
}

static unsigned times(void)
{
    const char *text = getenv("GRADPOOL_GPU_TIMES");
    int value = text == NULL ? 2 : atoi(text);

    return value < 1 ? 1 : value > TIMES_MAX ? TIMES_MAX : (unsigned)value;
}

enum { NO_FUNCTION = 13 }; /* NVML_ERROR_FUNCTION_NOT_FOUND */

#define EXPORT __attribute__((visibility("default")))
#define FORWARD(name, type, parameters, arguments)                                                           \
    EXPORT int name parameters;                                                                              \
    EXPORT int name parameters                                                                               \
    {                                                                                                        \
        int(*function) type;                                                                                 \
                                                                                                             \
        *(void **)&function = real(#name);                                                                   \
        return function == NULL ? NO_FUNCTION : function arguments;                                          \
    }

FORWARD(nvmlInit_v2, (void), (void), ())
FORWARD(nvmlSystemGetDriverVersion, (char *, unsigned), (char *text, unsigned bytes), (text, bytes))
FORWARD(nvmlDeviceGetName, (void *, char *, unsigned), (handle * at, char *text, unsigned bytes),
        (at->real, text, bytes))
FORWARD(nvmlDeviceGetPciInfo_v3, (void *, void *), (handle * at, void *out), (at->real, out))
FORWARD(nvmlDeviceGetMemoryInfo, (void *, void *), (handle * at, void *out), (at->real, out))
FORWARD(nvmlDeviceGetCudaComputeCapability, (void *, int *, int *), (handle * at, int *major, int *minor),
        (at->real, major, minor))
FORWARD(nvmlDeviceGetComputeMode, (void *, int *), (handle * at, int *out), (at->real, out))
FORWARD(nvmlDeviceGetDisplayActive, (void *, unsigned *), (handle * at, unsigned *out), (at->real, out))
FORWARD(nvmlDeviceGetComputeRunningProcesses_v3, (void *, unsigned *, void *),
        (handle * at, unsigned *count, void *out), (at->real, count, out))

EXPORT const char *nvmlErrorString(int code);
EXPORT const char *nvmlErrorString(int code)
{
    const char *(*function)(int);

    *(void **)&function = real("nvmlErrorString");
    return function == NULL ? "libnvidia-ml.so.1 is missing" : function(code);
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    int (*function)(unsigned *);
    int code;

    *(void **)&function = real("nvmlDeviceGetCount_v2");
    code = function == NULL ? NO_FUNCTION : function(count);
    if (code == 0)
        *count = (*count > CARDS_MAX ? CARDS_MAX : *count) * times();
    return code;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle **out);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle **out)
{
    int (*function)(unsigned, void **);

    *(void **)&function = real("nvmlDeviceGetHandleByIndex_v2");
    if (function == NULL || index >= CARDS_MAX * TIMES_MAX)
        return NO_FUNCTION;
    *out = &handles[index];
    handles[index].shorter =
        1 + index % times(); /* never the whole UUID: another pool may have claimed the GPU by it */
    return function(index / times(), &handles[index].real);
}

EXPORT int nvmlDeviceGetUUID(handle *at, char *text, unsigned bytes);
EXPORT int nvmlDeviceGetUUID(handle *at, char *text, unsigned bytes)
{
    int (*function)(void *, char *, unsigned);
    int code;

    *(void **)&function = real("nvmlDeviceGetUUID");
    code = function == NULL ? NO_FUNCTION : function(at->real, text, bytes);
    if (code == 0 && strlen(text) > at->shorter)
        text[strlen(text) - at->shorter] = '\0';
    return code;
}
