#include "worker/fault.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

enum { FAULTS_MAX = 8, FAULT_NAME_MAX = 31, FAULT_EXIT = 9 };

typedef enum fault_action { FAULT_KILL, FAULT_STOP, FAULT_EXIT_NOW, FAULT_HANG, FAULT_ACTIONS } fault_action;

static const char *const action_names[FAULT_ACTIONS] = { "kill", "stop", "exit", "hang" };

typedef struct fault {
    char point[FAULT_NAME_MAX + 1];
    fault_action action;
    _Atomic uint32_t left; /* passings until it acts; 0 = spent */
} fault;

bool gp_fault_armed;
static fault faults[FAULTS_MAX];
static uint32_t fault_count;

/* One "POINT:N:ACTION[@INDEX[.INCARNATION]]"; *ours tells whether it is meant for this worker. */
static bool fault_parse(const char *text, fault *out, bool *ours, uint32_t index, uint32_t incarnation)
{
    char action[8];
    unsigned times, at_index = index, at_incarnation = incarnation;
    int end = 0;

    if (sscanf(text, "%31[a-z_-]:%9u:%7[a-z]%n", out->point, &times, action, &end) != 3 || times == 0)
        return false;
    if (text[end] == '@') {
        int more = 0;

        if (sscanf(text + end, "@%9u%n", &at_index, &more) != 1)
            return false;
        end += more;
        if (text[end] == '.') {
            if (sscanf(text + end, ".%9u%n", &at_incarnation, &more) != 1)
                return false;
            end += more;
        }
    }
    if (text[end] != '\0' && text[end] != ',')
        return false;
    *ours = at_index == index && at_incarnation == incarnation;
    atomic_store(&out->left, times);
    for (int i = 0; i < FAULT_ACTIONS; i++)
        if (strcmp(action, action_names[i]) == 0) {
            out->action = (fault_action)i;
            return true;
        }
    return false;
}

gp_status gp_fault_setup(const char *spec, uint32_t index, uint32_t incarnation, gp_error *err)
{
    gp_fault_armed = false;
    fault_count = 0;
    while (spec != NULL && *spec != '\0') {
        bool ours;

        if (fault_count == FAULTS_MAX)
            return gp_fail(err, GP_ELIMIT, "GRADPOOL_FAULT has more than %d faults", FAULTS_MAX);
        if (!fault_parse(spec, &faults[fault_count], &ours, index, incarnation))
            return gp_fail(
                err, GP_EINVAL,
                "GRADPOOL_FAULT has \"%.60s\"; expected POINT:N:kill|stop|exit|hang[@INDEX[.INCARNATION]]",
                spec);
        fault_count += ours;
        spec += strcspn(spec, ",");
        spec += *spec == ',';
    }
    gp_fault_armed = fault_count != 0;
    return GP_OK;
}

static void fault_act(const fault *f)
{
    gp_log(GP_LOG_WARN, "fault point %s: %s", f->point, action_names[f->action]);
    switch (f->action) {
    case FAULT_KILL:
        raise(SIGKILL);
        break;
    case FAULT_STOP:
        kill(getpid(), SIGSTOP);
        break;
    case FAULT_EXIT_NOW:
        _exit(FAULT_EXIT);
    default:
        for (;;)
            pause();
    }
}

void gp_fault_pass(const char *point)
{
    for (uint32_t i = 0; i < fault_count; i++) {
        uint32_t left = atomic_load(&faults[i].left);

        if (strcmp(point, faults[i].point) != 0)
            continue;
        while (left != 0 && !atomic_compare_exchange_weak(&faults[i].left, &left, left - 1))
            ;
        if (left == 1)
            fault_act(&faults[i]);
    }
}
