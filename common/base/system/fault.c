/* Implement fault.h. */
#include "common/base/system/fault.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/text/log.h"

/* Limits: fault count, point name length; exit status for the action "exit". */
enum { FAULTS_MAX = 8, FAULT_NAME_MAX = 31, FAULT_EXIT = 9 };

typedef enum fault_action { FAULT_KILL, FAULT_STOP, FAULT_EXIT_NOW, FAULT_HANG, FAULT_ACTIONS } fault_action;

static const char *const action_names[FAULT_ACTIONS] = { "kill", "stop", "exit", "hang" };

const gp_fault_entry gp_fault_points[] = {
#define GP_FAULT(process, point, when) { GP_FAULT_##process, point, when },
#include "common/base/system/fault.def"
#undef GP_FAULT
    { 0 }
};

/* An armed fault. */
typedef struct fault {
    const gp_fault_entry *entry;
    fault_action action;
    uint32_t index, incarnation; /* 0: any */
    _Atomic uint32_t left;       /* passes until the action; 0: action performed */
} fault;

bool gp_fault_armed;
static fault faults[FAULTS_MAX];
static uint32_t fault_count;

/* Parse one "POINT:N:ACTION[@INDEX[.INCARNATION]]", terminated by a comma or NUL. */
static bool fault_parse(const char *text, fault *out)
{
    char point[FAULT_NAME_MAX + 1], action[8];
    unsigned times, index = 0, incarnation = 0;
    int end = 0, more = 0;

    if (sscanf(text, "%31[a-z_-]:%9u:%7[a-z]%n", point, &times, action, &end) != 3 || times == 0)
        return false;
    if (text[end] == '@') {
        if (sscanf(text + end, "@%9u%n", &index, &more) != 1 || index == 0)
            return false;
        end += more;
        if (text[end] == '.') {
            if (sscanf(text + end, ".%9u%n", &incarnation, &more) != 1 || incarnation == 0)
                return false;
            end += more;
        }
    }
    if (text[end] != '\0' && text[end] != ',')
        return false;
    out->index = index;
    out->incarnation = incarnation;
    atomic_store(&out->left, times);
    for (out->entry = gp_fault_points; out->entry->point != NULL; out->entry++)
        if (strcmp(out->entry->point, point) == 0)
            break;
    for (out->action = FAULT_KILL; out->action < FAULT_ACTIONS; out->action++)
        if (strcmp(action, action_names[out->action]) == 0)
            break;
    return out->entry->point != NULL && out->action < FAULT_ACTIONS;
}

gp_status gp_fault_setup(const char *spec, gp_fault_process process, uint32_t index, uint32_t incarnation,
                         gp_error *err)
{
    gp_fault_armed = false;
    fault_count = 0;
    while (spec != NULL && *spec != '\0') {
        fault *f = &faults[fault_count];

        if (fault_count == FAULTS_MAX)
            return gp_fail(err, GP_ELIMIT, "GRADPOOL_FAULT has more than %d faults", FAULTS_MAX);
        if (!fault_parse(spec, f))
            return gp_fail(err, GP_EINVAL,
                           "GRADPOOL_FAULT has \"%.60s\"; must be "
                           "POINT:N:kill|stop|exit|hang[@INDEX[.INCARNATION]] with a point of docs/faults.md",
                           spec);
        fault_count += f->entry->process == process && (f->index == 0 || f->index == index) &&
                       (f->incarnation == 0 || f->incarnation == incarnation);
        spec += strcspn(spec, ",");
        spec += *spec == ',';
    }
    gp_fault_armed = fault_count != 0;
    return GP_OK;
}

gp_status gp_fault_arm(gp_fault_process process, uint32_t index, uint32_t incarnation, gp_error *err)
{
    return gp_fault_setup(getenv("GRADPOOL_FAULT"), process, index, incarnation, err);
}

/* Append the fault to the file in GRADPOOL_FAULT_REPORT, for the test that waits for the fault. */
static void fault_report(const fault *f)
{
    const char *path = getenv("GRADPOOL_FAULT_REPORT");
    int fd = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return;
    dprintf(fd, "%d %s %s\n", (int)getpid(), f->entry->point, action_names[f->action]);
    close(fd);
}

/* Log the fault and perform the action. Returns only after SIGSTOP and SIGCONT. */
static void fault_act(const fault *f)
{
    gp_log_event(
        GP_LOG_WARN, "fault-point",
        GP_LOG_WITH({ "point", .text = f->entry->point }, { "action", .text = action_names[f->action] }),
        "an armed fault point was reached");
    fault_report(f);
    switch (f->action) {
    case FAULT_KILL:
        raise(SIGKILL);
        break;
    case FAULT_STOP:
        raise(SIGSTOP);
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

        if (strcmp(point, faults[i].entry->point) != 0)
            continue;

        /* Several threads can pass the point at the same time; exactly one thread changes the count
         * from 1 to 0 and performs the action. */
        while (left != 0 && !atomic_compare_exchange_weak(&faults[i].left, &left, left - 1))
            ;
        if (left == 1)
            fault_act(&faults[i]);
    }
}
