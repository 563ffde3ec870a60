# Two files in the place of two sectors, for a board whose whole flash is a file system. It must be littlefs:
# what it has written once a file is closed survives a power cut. A board that has a partition of its own
# for it gives that to save and load.
class FileSlots:
    def __init__(self, name, size):
        self.names = [name + "0.bin", name + "1.bin"]
        self.size = size

    def readblocks(self, block, buffer, offset=0):
        for i in range(len(buffer)):
            buffer[i] = 0xFF  # what is not in the file is blank
        try:
            with open(self.names[block], "rb") as file:
                file.seek(offset)
                file.readinto(buffer)
        except OSError:
            pass  # there is no such file yet

    def writeblocks(self, block, buffer, offset=0):
        with open(self.names[block], "r+b") as file:
            file.seek(offset)
            file.write(buffer)

    def ioctl(self, request, argument):
        if request == 4:
            return 2  # blocks
        if request == 5:
            return self.size  # bytes of each
        if request == 6:
            with open(self.names[argument], "wb") as file:  # erase
                for _ in range(0, self.size, 64):
                    file.write(b"\xff" * 64)
        return 0
