/* cases.h: run many test cases in parallel, each in a child process, and print the failed ones. */
#ifndef GP_TEST_FAULT_CASES_H
#define GP_TEST_FAULT_CASES_H

#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/gp_test.h"

enum { CASES_AT_ONCE_MAX = 32 };

typedef struct case_list {
    size_t count;
    void (*run)(void *context, size_t i); /* runs in a child; fails by GP_TEST_FAIL */
    const char *(*name)(void *context, size_t i);
    void *context;
    int at_once;
} case_list;

typedef struct case_slot {
    pid_t pid;
    size_t i;
    FILE *said;
} case_slot;

static inline void case_begin(const case_list *list, case_slot *slot, size_t i)
{
    slot->i = i;
    slot->said = tmpfile();
    if (slot->said == NULL)
        abort();
    fflush(stdout);
    slot->pid = fork();
    if (slot->pid != 0)
        return;
    if (dup2(fileno(slot->said), STDOUT_FILENO) < 0 || dup2(fileno(slot->said), STDERR_FILENO) < 0)
        _exit(99);
    gp_test_failures = 0;
    list->run(list->context, i);
    fflush(stdout);
    _exit(gp_test_failures != 0);
}

static inline void case_end(const case_list *list, case_slot *slot, int state)
{
    char line[4000];

    slot->pid = 0;
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) {
        GP_TEST_FAIL("%s: exit state %d", list->name(list->context, slot->i), state);
        rewind(slot->said);
        while (fgets(line, sizeof(line), slot->said) != NULL)
            printf("      %s", line);
    }
    fclose(slot->said);
}

static inline void cases_run(const case_list *list)
{
    case_slot slots[CASES_AT_ONCE_MAX] = { { 0 } };
    int64_t began = gp_now_ms();
    size_t next = 0, running = 0;

    while (next < list->count || running > 0) {
        int state;

        for (int s = 0; s < list->at_once && next < list->count; s++)
            if (slots[s].pid == 0) {
                case_begin(list, &slots[s], next++);
                running++;
            }
        pid_t ended = waitpid(-1, &state, 0);

        for (int s = 0; s < list->at_once; s++)
            if (slots[s].pid == ended && ended > 0) {
                case_end(list, &slots[s], state);
                running--;
            }
    }
    printf("     %zu cases in %.1f s\n", list->count, (double)(gp_now_ms() - began) * 1e-3);
}

#endif
