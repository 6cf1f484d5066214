/* replay.c -- main() for a fuzz target without libFuzzer: every file of the folders named runs once. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The bytes are copied to a block of their own size, so that a sanitizer sees a read behind the end. */
static int file_run(const char *path)
{
    static uint8_t bytes[1 << 21];
    FILE *file = fopen(path, "rb");

    if (file == NULL) {
        perror(path);
        return 1;
    }
    size_t count = fread(bytes, 1, sizeof(bytes), file);
    uint8_t *exact = malloc(count == 0 ? 1 : count);

    fclose(file);
    if (exact == NULL)
        return 1;
    for (size_t i = 0; i < count; i++)
        exact[i] = bytes[i];
    LLVMFuzzerTestOneInput(exact, count);
    free(exact);
    return 0;
}

int main(int count, char **folders)
{
    unsigned run = 0, failed = 0;
    char path[2048];

    for (int i = 1; i < count; i++) {
        DIR *dir = opendir(folders[i]);

        if (dir == NULL) {
            perror(folders[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s", folders[i], entry->d_name);
            failed += (unsigned)file_run(path);
            run++;
        }
        closedir(dir);
    }
    printf("%u inputs, %u could not be read\n", run, failed);
    return failed != 0 || run == 0 ? 1 : 0;
}
