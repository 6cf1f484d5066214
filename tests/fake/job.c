/* job.c: the command that tests run as a job instead of gradpool (set by GRADPOOL_CLIENT).
 *
 *   train append FILE MS      wait MS, append "JOB ATTEMPT PID" to FILE, succeed
 *   train record FILE MS      the same, as history entries for start and finish
 *   train show FILE           write working directory, umask and environment to FILE
 *   train exit N | train abort | train lost   end this way; lost: as if the pool was lost
 *   train until FILE [CODE]   wait for FILE, ignoring SIGTERM; then exit with CODE
 *   train while FILE          run while FILE exists
 *   train print N FILE        print N lines, and another line when FILE exists
 *   train count FOLDER MS     fail if three of these run with FOLDER at the same time */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/jobs/job_self.h"
#include "common/base/clock.h"
#include "tests/sim/history.h"

extern char **environ;

static int append(const char *path, const char *attempt)
{
    char line[100];
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    int bytes = snprintf(line, sizeof(line), "%s %s %d\n", getenv("GRADPOOL_JOB"), attempt, (int)getpid());

    return fd >= 0 && write(fd, line, (size_t)bytes) == bytes ? 0 : 1;
}

/* Append one history entry (tests/sim/history.h). */
static int record(const char *path, history_kind kind, const char *attempt)
{
    history_entry entry = { .kind = kind,
                            .id = strtoull(getenv("GRADPOOL_JOB"), NULL, 10),
                            .attempt = (uint32_t)atoi(attempt) };

    return history_append(path, entry) ? 0 : 1;
}

static int show(const char *path)
{
    char directory[4096];
    FILE *file = fopen(path, "w");
    mode_t mask = umask(0);

    if (file == NULL || getcwd(directory, sizeof(directory)) == NULL)
        return 1;
    fprintf(file, "directory %s\numask %03o\n", directory, (unsigned)mask);
    for (char **at = environ; *at != NULL; at++)
        fprintf(file, "%s\n", *at);
    return fclose(file) == 0 ? 0 : 1;
}

/* Create a marker file for this process and count the markers of all processes. */
static int count(const char *folder, long ms)
{
    char mine[300];
    int there = 0;
    DIR *directory;

    snprintf(mine, sizeof(mine), "%s/%d", folder, (int)getpid());
    close(open(mine, O_WRONLY | O_CREAT, 0600));
    gp_sleep_ms(ms);
    directory = opendir(folder);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;)
        there += entry->d_name[0] != '.';
    closedir(directory);
    unlink(mine);
    return there >= 3 ? 1 : 0;
}

static int run(int argc, char **argv, const char *attempt)
{
    const char *verb = argc > 2 ? argv[2] : "", *word = argc > 3 ? argv[3] : "";
    long ms = argc > 4 ? atol(argv[4]) : 0;

    if (strcmp(verb, "append") == 0) {
        gp_sleep_ms(ms);
        return append(word, attempt);
    }
    if (strcmp(verb, "record") == 0) {
        if (record(word, HISTORY_START, attempt) != 0)
            return 1;
        gp_sleep_ms(ms);
        return record(word, HISTORY_FINISH, attempt);
    }
    if (strcmp(verb, "show") == 0)
        return show(word);
    if (strcmp(verb, "exit") == 0)
        return atoi(word);
    if (strcmp(verb, "abort") == 0)
        abort();
    if (strcmp(verb, "lost") == 0) {
        job_self_error(&(gp_error){ .code = GP_EPEER, .message = "the scheduler is gone" });
        return 1;
    }
    if (strcmp(verb, "count") == 0)
        return count(word, ms);
    if (strcmp(verb, "print") == 0 && argc > 4) {
        for (int i = 0; i <= atoi(word); i++) {
            while (i == atoi(word) && access(argv[4], F_OK) != 0)
                gp_sleep_ms(2);
            printf("line %d\n", i + 1);
            fflush(stdout);
        }
        return 0;
    }
    while (strcmp(verb, "while") == 0 && access(word, F_OK) == 0)
        gp_sleep_ms(2);
    if (strcmp(verb, "until") == 0) {
        signal(SIGTERM, SIG_IGN);
        printf("waiting\n");
        fflush(stdout);
        while (access(word, F_OK) != 0)
            gp_sleep_ms(2);
        return (int)ms; /* CODE */
    }
    return 0;
}

int main(int argc, char **argv)
{
    char attempt[16];
    int code;

    snprintf(attempt, sizeof(attempt), "%s",
             getenv("GRADPOOL_JOB_ATTEMPT") != NULL ? getenv("GRADPOOL_JOB_ATTEMPT") : "0");
    job_self_begin(argc, argv);
    code = run(argc, argv, attempt);
    job_self_end(code);
    return code;
}
