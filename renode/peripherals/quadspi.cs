// QUADSPI and the flash behind it (RM0385, chapter 14), as far as the firmware uses them: commands are over at once, READ ID
// is answered, and the bytes are plain memory at 0x90000000. tools/emulator/peripherals/quadspi.py checks how the window is
// set up; this does not.
using System.Collections.Generic;

using Antmicro.Renode.Core;
using Antmicro.Renode.Peripherals.Bus;

namespace Antmicro.Renode.Peripherals.SPI
{
    [AllowedTranslations(AllowedTranslation.ByteToDoubleWord | AllowedTranslation.WordToDoubleWord)]
    public class F746_QuadSPI : IDoubleWordPeripheral, IKnownSize
    {
        public F746_QuadSPI(IMachine machine)
        {
            Reset();
        }

        public void Reset()
        {
            registers.Clear();
            registers[Command] = 0;
            complete = false;
        }

        public uint ReadDoubleWord(long offset)
        {
            if(offset == Status)
            {
                return complete ? TransferComplete : 0;
            }
            uint value;
            registers.TryGetValue(offset, out value);
            return offset == Data && (registers[Command] & InstructionMask) == ReadId ? Identity : value;
        }

        public void WriteDoubleWord(long offset, uint value)
        {
            if(offset == FlagClear)
            {
                complete &= (value & TransferComplete) == 0;
                return;
            }
            registers[offset] = value;
            complete |= offset == Command && (value & FunctionalMode) != MemoryMapped;
        }

        public long Size => 0x400;

        private bool complete;

        private readonly Dictionary<long, uint> registers = new Dictionary<long, uint>();

        private const long Status = 0x08;
        private const long FlagClear = 0x0C;
        private const long Command = 0x14;
        private const long Data = 0x20;
        private const uint TransferComplete = 1u << 1;
        private const uint InstructionMask = 0xFF;
        private const uint FunctionalMode = 3u << 26;
        private const uint MemoryMapped = 3u << 26;
        private const uint ReadId = 0x9F;
        private const uint Identity = 0x1018BA20;
    }
}
