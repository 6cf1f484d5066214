/* s3.h: start and control tests/fake/s3.py, an S3 service on loopback that checks signatures and
 * injects faults on command. */
#ifndef GP_FAKE_S3_H
#define GP_FAKE_S3_H

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct s3_server {
    pid_t pid;
    FILE *commands, *answers;
    int port;   /* 0: not running; see `why` */
    bool lacks; /* a Python package is missing; false: the server failed */
    char why[200];
} s3_server;

/* Skip or fail the test if the server is not running. */
#define S3_REQUIRE(server)                                                                                   \
    do {                                                                                                     \
        if ((server)->port == 0 && (server)->lacks)                                                          \
            SKIP("%s", (server)->why);                                                                       \
        if ((server)->port == 0)                                                                             \
            GP_TEST_FAIL("tests/fake/s3.py did not start: %s", (server)->why);                               \
        if ((server)->port == 0)                                                                             \
            return;                                                                                          \
    } while (0)

/* Send a command and return the answer without "ok". NULL: the command failed; the error is
 * printed. */
__attribute__((format(printf, 2, 3), unused)) static const char *s3_server_run(s3_server *server,
                                                                               const char *format, ...)
{
    static char answer[400];
    va_list list;

    va_start(list, format);
    vfprintf(server->commands, format, list);
    va_end(list);
    fputc('\n', server->commands);
    fflush(server->commands);
    if (fgets(answer, sizeof(answer), server->answers) == NULL || strncmp(answer, "ok", 2) != 0) {
        printf("    S3 server: %s\n", answer);
        return NULL;
    }
    answer[strcspn(answer, "\n")] = '\0';
    return answer + 2 + (answer[2] == ' ');
}

/* Return the server of this process, started on first use. It exits with the process. */
__attribute__((unused)) static s3_server *s3_start(void)
{
    static s3_server server;
    const char *python = getenv("GP_PYTHON"), *source = getenv("GP_SOURCE_DIR");
    char script[600], line[200] = "";
    int in[2], out[2];

    if (server.pid != 0)
        return &server;
    snprintf(script, sizeof(script), "%s/tests/fake/s3.py", source != NULL ? source : ".");
    signal(SIGPIPE, SIG_IGN);
    if (pipe(in) != 0 || pipe(out) != 0)
        abort();
    server.pid = fork();
    if (server.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        python = python != NULL ? python : "/usr/bin/python3";

        /* Python finds the packages beside it by this name */
        execl(python, python, script, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    server.commands = fdopen(in[1], "w");
    server.answers = fdopen(out[0], "r");
    if (fgets(line, sizeof(line), server.answers) == NULL || sscanf(line, "ready %d", &server.port) != 1)
        server.lacks = strncmp(line, "SKIP: ", 6) == 0;
    if (server.port == 0)
        snprintf(server.why, sizeof(server.why), "%.*s", (int)strcspn(line, "\n"),
                 strncmp(line, "SKIP: ", 6) == 0 ? line + 6 : line);
    return &server;
}

/* Return s3://PATH?endpoint=...&cache=SIZE, valid until the fourth call after this one. */
__attribute__((unused)) static const char *s3_source(const s3_server *server, const char *path,
                                                     const char *cache)
{
    static char texts[4][400];
    static int next;
    char *text = texts[next++ % 4];

    snprintf(text, sizeof(texts[0]), "s3://%s?endpoint=http://127.0.0.1:%d&region=us-east-1&cache=%s", path,
             server->port, cache);
    return text;
}

#endif
