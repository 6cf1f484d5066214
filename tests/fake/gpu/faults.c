/* faults.c: fault injection by the rules in FAKE_GPU_FAULTS. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake/gpu/parts.h"

enum { RULES_MAX = 32 };

typedef struct rule {
    char name[64], file[200]; /* file "": the rule counts calls */
    uint64_t number;
    bool onwards, once;
    char what[16];
} rule;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_point *points;
static rule rules[RULES_MAX];
static int rule_count = -1; /* -1: not parsed yet */
static uint32_t violations;

/* Parse NAME:N=ACTION, NAME:N+=ACTION, NAME@FILE=ACTION or NAME!FILE=ACTION. A malformed rule ends
 * the process, so that no test runs without the fault. */
static void rule_parse(const char *text, size_t bytes)
{
    char line[320], *value, *how;
    rule *r = &rules[rule_count];

    snprintf(line, sizeof(line), "%.*s", (int)bytes, text);
    memset(r, 0, sizeof(*r));
    value = strrchr(line, '=');
    how = strpbrk(line, ":@!");
    if (value == NULL || how == NULL || how > value || rule_count == RULES_MAX) {
        fprintf(stderr,
                "FAKE_GPU_FAULTS: malformed rule \"%s\" (expected NAME:N=ACTION, NAME:N+=ACTION, "
                "NAME@FILE=ACTION or NAME!FILE=ACTION)\n",
                line);
        _exit(99);
    }
    *value++ = '\0';
    r->onwards = value[-2] == '+';
    snprintf(r->what, sizeof(r->what), "%.15s", value);
    r->once = *how == '!';
    if (*how != ':')
        snprintf(r->file, sizeof(r->file), "%.199s", how + 1);
    else
        r->number = strtoull(how + 1, NULL, 10);
    *how = '\0';
    snprintf(r->name, sizeof(r->name), "%.63s", line);
    rule_count++;
}

static void rules_parse(const char *text)
{
    rule_count = 0;
    while (text != NULL && *text != '\0') {
        size_t bytes = strcspn(text, ";");

        if (bytes != 0)
            rule_parse(text, bytes);
        text += bytes + (text[bytes] == ';');
    }
}

static bool rule_holds(const rule *r, uint64_t number)
{
    if (r->once)
        return unlink(r->file) == 0; /* succeeds in exactly one process */
    if (r->file[0] != '\0')
        return access(r->file, F_OK) == 0;
    return r->onwards ? number >= r->number : number == r->number;
}

static int rule_apply(const rule *r)
{
    if (strcmp(r->what, "hang") == 0)
        return FAKE_HANG;
    if (strcmp(r->what, "exit") == 0)
        _exit(98);
    if (strcmp(r->what, "crash") == 0) {
        signal(SIGSEGV, SIG_DFL); /* sanitizers turn SIGSEGV into an exit */
        kill(getpid(), SIGSEGV);
    }
    return atoi(r->what);
}

int fake_reached(fake_point *point)
{
    const rule *found = NULL;
    uint64_t number;

    pthread_mutex_lock(&lock);
    if (rule_count < 0)
        rules_parse(getenv("FAKE_GPU_FAULTS"));
    if (!point->known) {
        point->known = true;
        point->next = points;
        points = point;
    }
    number = ++point->calls - point->base;
    for (int i = 0; i < rule_count && found == NULL; i++) {
        const rule *r = &rules[i];

        if (strcmp(r->name, point->name) == 0 && rule_holds(r, number))
            found = r;
    }
    pthread_mutex_unlock(&lock);
    return found == NULL ? 0 : rule_apply(found);
}

void fake_wait_for_ever(void)
{
    fake_trace("hangs");
    for (;;)
        pause();
}

void fake_violation(const char *format, ...)
{
    va_list values;
    char text[200];

    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    fprintf(stderr, "fake GPU: %s\n", text);
    __atomic_add_fetch(&violations, 1, __ATOMIC_RELAXED);
}

void fake_trace(const char *format, ...)
{
    const char *path = getenv("FAKE_GPU_TRACE");
    FILE *file = path == NULL ? NULL : fopen(path, "ae");
    va_list values;

    if (file == NULL)
        return;
    va_start(values, format);
    fprintf(file, "%d ", (int)getpid());
    vfprintf(file, format, values);
    fputc('\n', file);
    va_end(values);
    fclose(file);
}

long fake_number(const char *variable, long otherwise)
{
    const char *text = getenv(variable);

    return text == NULL || text[0] == '\0' ? otherwise : atol(text);
}

long fake_number_at(const char *variable, int64_t index)
{
    const char *text = getenv(variable);

    while (text != NULL && index-- > 0) {
        text = strchr(text, ',');
        text = text == NULL ? NULL : text + 1;
    }
    return text == NULL ? 0 : atol(text);
}

static int64_t spent_ns;

void fake_spend(long us)
{
    __atomic_add_fetch(&spent_ns, (int64_t)us * 1000, __ATOMIC_RELAXED);
}

int64_t fake_device_ns(void)
{
    static const char *const said[] = { "FAKE_GPU_ENGINE_US", "FAKE_GPU_TILE_US", "FAKE_GPU_FUSED_US",
                                        "FAKE_GPU_ALGORITHM_US" };
    struct timespec now;

    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
        if (getenv(said[i]) != NULL && getenv(said[i])[0] != '\0')
            return __atomic_load_n(&spent_ns, __ATOMIC_RELAXED);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- for tests ---- */

uint64_t fake_gpu_count(const char *name)
{
    uint64_t calls = 0;

    pthread_mutex_lock(&lock);
    for (const fake_point *p = points; p != NULL; p = p->next)
        if (strcmp(p->name, name) == 0)
            calls += p->calls - p->base;
    pthread_mutex_unlock(&lock);
    return calls;
}

void fake_gpu_reset_counts(void)
{
    pthread_mutex_lock(&lock);
    for (fake_point *p = points; p != NULL; p = p->next)
        p->base = p->calls;
    pthread_mutex_unlock(&lock);
}

void fake_gpu_faults(const char *text)
{
    pthread_mutex_lock(&lock);
    rules_parse(text);
    pthread_mutex_unlock(&lock);
}

uint32_t fake_gpu_violations(void)
{
    return __atomic_load_n(&violations, __ATOMIC_RELAXED);
}
