/* Tests for tests/leftovers.h: all files and processes of a test are removed, however the test
 * ends. */
#include "tests/leftovers.h"

#include <spawn.h>
#include <stdint.h>
#include <sys/stat.h>

#include "tests/gp_test.h"

enum { ENDS = 5, TIMEOUT_MS = 20000 }; /* ways to end a test; limit for the cleanup */

/* Return whether a process exists and is not a zombie. */
static bool lives(int pid)
{
    char path[40], state = 'X';

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");

    if (file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    if (file != NULL)
        fclose(file);
    return state != 'X' && state != 'Z';
}

/* Simulate a test that creates directories and a process, and exits without cleaning up.
 *   how   0: _exit(), 1: abort(), 2: SIGKILL, 3: SIGSEGV, 4: removal of the folders and _exit()
 *   told  file that receives both directories and the process id */
static void dies(int how, const char *reported)
{
    char first[] = "/tmp/gpt-XXXXXX", second[] = "/tmp/gradpool-test-XXXXXX", path[64];
    FILE *file = fopen(reported, "w");

    if (file == NULL || leftovers_make(first) == NULL || leftovers_make(second) == NULL)
        _exit(99);
    snprintf(path, sizeof(path), "%s/inner", first);
    if (mkdir(path, 0700) != 0)
        _exit(99);
    setenv("GRADPOOL_RUNTIME_DIR", first, 1);
    char *const words[] = { (char *)(uintptr_t) "sleep", (char *)(uintptr_t) "600", NULL };
    pid_t child;

    /* When posix_spawn() returns, the child has already called exec(), so its environment names the
     * directory. */
    if (posix_spawn(&child, "/bin/sleep", NULL, NULL, words, environ) != 0)
        _exit(98);
    fprintf(file, "%s %s %d", first, second, (int)child);
    fclose(file);
    if (how == 4) {
        leftovers_clear(first);
        leftovers_clear(second);
    }
    if (how == 0 || how == 4)
        _exit(0);
    if (how == 1)
        abort();
    kill(getpid(), how == 2 ? SIGKILL : SIGSEGV);
}

TEST(files_and_processes_of_a_test_are_removed_however_it_ends)
{
    char reported[] = "/tmp/gpt-XXXXXX", path[40];

    REQUIRE(leftovers_make(reported) != NULL);
    snprintf(path, sizeof(path), "%s/told", reported);
    for (int how = 0; how < ENDS; how++) {
        char first[40] = "", second[40] = "";
        int child = 0, state;
        pid_t test = fork();

        if (test == 0) {
            dies(how, path);
            _exit(97);
        }
        waitpid(test, &state, 0);
        FILE *file = fopen(path, "r");

        REQUIRE(file != NULL);
        CHECK_INT(3, fscanf(file, "%39s %39s %d", first, second, &child));
        fclose(file);
        /* Wait: the kernel may remove a killed process later than the directories are removed. */
        for (int waited = 0;
             waited < TIMEOUT_MS && (access(first, F_OK) == 0 || access(second, F_OK) == 0 || lives(child));
             waited += 10)
            usleep(10000);
        CHECK(first[0] == '/' && access(first, F_OK) != 0);
        CHECK(second[0] == '/' && access(second, F_OK) != 0);
        if (child <= 0 || lives(child))
            GP_TEST_FAIL("end %d: process %d with the environment of %s is still running", how, child, first);
    }
    /* The directory of the running test is not removed. */
    CHECK(access(reported, F_OK) == 0);
}
