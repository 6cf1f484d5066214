/* folders.h: shell commands in the scratch directory of a test, and files of job folders. */
#ifndef GP_TEST_FOLDERS_H
#define GP_TEST_FOLDERS_H

#include <stdarg.h>
#include <sys/wait.h>

#include "tests/proto/scratch.h"

/* Run a shell command in the scratch directory and return its exit code. */
__attribute__((unused, format(printf, 1, 2))) static int shell(const char *format, ...)
{
    char command[4096], text[4200];
    va_list arguments;
    int state;

    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    snprintf(text, sizeof(text), "cd %s && { %s\n}", scratch_dir, command);
    fflush(stdout);
    state = system(text);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

/* Read a file below the folder of a job. The result is valid until the next call; "": no file. */
__attribute__((unused)) static const char *folder_read(const char *folder, const char *name)
{
    static char text[1 << 20];
    char path[400];
    FILE *file;
    size_t got = 0;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "re");
    if (file != NULL) {
        got = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
    }
    text[got] = '\0';
    return text;
}

#endif
