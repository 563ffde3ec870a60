// The flash of the STM32F746 and its controller (RM0385, chapter 3), as tools/emulator/peripherals/flash.py has them:
// locked by keys, programming only clears bits, erasing a sector sets them, and the core stands still meanwhile.
using System;
using System.Collections.Generic;
using System.Linq;

using Antmicro.Renode.Core;
using Antmicro.Renode.Logging;
using Antmicro.Renode.Peripherals.Bus;
using Antmicro.Renode.Peripherals.CPU;
using Antmicro.Renode.Peripherals.Memory;
using Antmicro.Renode.Peripherals.Miscellaneous;
using Antmicro.Renode.Time;

namespace Antmicro.Renode.Peripherals.MTD
{
    // The bytes. Code and constants run and are read at full speed; in the sectors that the firmware programs, each
    // access is a call, so that stores go through the controller.
    public class F746_Flash : IMemory, IMapped
    {
        // programmable: bit n is set where the firmware programs sector n
        public F746_Flash(IMachine machine, uint programmable)
        {
            this.machine = machine;
            content = new MappedMemory(machine, FlashSize, SegmentSize);
            content.ResetByte = Erased;
            content.TouchAllSegments();
            mapped = content.MappedSegments.Where(segment => !IsProgrammable(segment, programmable)).ToList();
        }

        public void Reset()
        {
            // flash outlives every reset
        }

        public byte ReadByte(long offset)
        {
            return content.ReadByte(offset);
        }

        public ushort ReadWord(long offset)
        {
            return content.ReadWord(offset);
        }

        public uint ReadDoubleWord(long offset)
        {
            return content.ReadDoubleWord(offset);
        }

        public ulong ReadQuadWord(long offset)
        {
            return content.ReadQuadWord(offset);
        }

        public void WriteByte(long offset, byte value)
        {
            Store(offset, new[] { value });
        }

        public void WriteWord(long offset, ushort value)
        {
            Store(offset, BitConverter.GetBytes(value));
        }

        public void WriteDoubleWord(long offset, uint value)
        {
            Store(offset, BitConverter.GetBytes(value));
        }

        public void WriteQuadWord(long offset, ulong value)
        {
            Store(offset, BitConverter.GetBytes(value));
        }

        public byte[] ReadBytes(long offset, int count, IPeripheral context = null)
        {
            return content.ReadBytes(offset, count);
        }

        // What a debugger or the loader of an ELF writes.
        public void WriteBytes(long offset, byte[] array, int startingIndex, int count, IPeripheral context = null)
        {
            content.WriteBytes(offset, array, startingIndex, count);
            foreach(var cpu in machine.SystemBus.GetCPUs().OfType<TranslationCPU>())
            {
                cpu.ClearTranslationCache();
            }
        }

        public void Erase(int sector)
        {
            var erased = Enumerable.Repeat(Erased, SectorSize(sector)).ToArray();
            WriteBytes(SectorStart(sector), erased, 0, erased.Length);
        }

        public static int SectorSize(int sector)
        {
            return sector < 4 ? 0x8000 : sector == 4 ? 0x20000 : 0x40000;
        }

        public F746_FlashController Controller { get; set; }

        public IEnumerable<IMappedSegment> MappedSegments => mapped;

        public long Size => FlashSize;

        private static int SectorStart(int sector)
        {
            return Enumerable.Range(0, sector).Sum(before => SectorSize(before));
        }

        private static bool IsProgrammable(IMappedSegment segment, uint programmable)
        {
            var start = (long)segment.StartingOffset;
            return Enumerable.Range(0, F746_FlashController.Sectors).Any(sector =>
                (programmable >> sector & 1) != 0
                && SectorStart(sector) < start + (long)segment.Size && start < SectorStart(sector) + SectorSize(sector));
        }

        private void Store(long offset, byte[] data)
        {
            ICPU cpu;
            if(!machine.SystemBus.TryGetCurrentCPU(out cpu))
            {
                WriteBytes(offset, data, 0, data.Length);
                return;
            }
            if(!Controller.MayProgram(offset, data.Length))
            {
                return;
            }
            var old = content.ReadBytes(offset, data.Length);
            content.WriteBytes(offset, data.Zip(old, (a, b) => (byte)(a & b)).ToArray(), 0, data.Length);
            Controller.Programmed();
        }

        private readonly IMachine machine;
        private readonly MappedMemory content;
        private readonly List<IMappedSegment> mapped;

        private const byte Erased = 0xFF;
        private const int FlashSize = 0x100000;
        private const int SegmentSize = 0x10000; // the least that Renode maps
    }

    [AllowedTranslations(AllowedTranslation.ByteToDoubleWord | AllowedTranslation.WordToDoubleWord)]
    public class F746_FlashController : IDoubleWordPeripheral, IKnownSize
    {
        public F746_FlashController(IMachine machine, F746_Flash flash, F746_RCC rcc)
        {
            this.machine = machine;
            this.flash = flash;
            this.rcc = rcc;
            flash.Controller = this;
            Reset();
        }

        public void Reset()
        {
            accessControl = status = 0;
            control = Lock;
            keysSeen = 0;
            powerFailed = false;
        }

        public uint ReadDoubleWord(long offset)
        {
            switch((Registers)offset)
            {
            case Registers.AccessControl:
                return accessControl;
            case Registers.Status:
                return status;
            case Registers.Control:
                return control;
            case Registers.OptionControl:
                return OptionControlAfterReset;
            default:
                return 0;
            }
        }

        public void WriteDoubleWord(long offset, uint value)
        {
            switch((Registers)offset)
            {
            case Registers.AccessControl:
                accessControl = value;
                break;
            case Registers.Key:
                Unlock(value);
                break;
            case Registers.Status:
                status &= ~(value & StatusClearedByWriting);
                break;
            case Registers.Control:
                WriteControl(value);
                break;
            default:
                this.Log(LogLevel.Warning, "write of 0x{0:X8} to offset 0x{1:X}: option bytes are not modelled", value, offset);
                break;
            }
        }

        // The power fails just after the n-th programmed unit or erased sector from now on, and comes back at once.
        public void PowerFailsIn(long operations)
        {
            failsAt = this.operations + operations;
        }

        public bool MayProgram(long offset, int size)
        {
            if(powerFailed)
            {
                return false;
            }
            if((control & (Lock | Program)) != Program)
            {
                this.Log(LogLevel.Error, "store to flash that is not being programmed, offset 0x{0:X}", offset);
                status |= EraseSequenceError;
                return false;
            }
            if(size != 1 << (int)(control >> 8 & 3))
            {
                status |= ParallelismError;
                return false;
            }
            return true;
        }

        public void Programmed()
        {
            Finish(ProgramMicroseconds);
        }

        public long Size => 0x400;

        public const int Sectors = 8;

        private void Unlock(uint key)
        {
            var right = keysSeen < Keys.Length && key == Keys[keysSeen];
            keysSeen = right ? keysSeen + 1 : Keys.Length; // after a wrong key, locked until the next reset
            if(right && keysSeen == Keys.Length)
            {
                control &= ~Lock;
            }
        }

        private void WriteControl(uint value)
        {
            if((control & Lock) != 0)
            {
                this.Log(LogLevel.Warning, "write of 0x{0:X8} to the locked control register", value);
                return;
            }
            control = value & ~Start;
            if((value & Lock) != 0)
            {
                keysSeen = 0;
            }
            if((value & Start) == 0 || powerFailed)
            {
                return;
            }
            var sector = (int)(value >> 3 & 15);
            if((value & MassErase) != 0)
            {
                for(var each = 0; each < Sectors; each++)
                {
                    Erase(each);
                }
            }
            else if((value & SectorErase) != 0 && sector < Sectors)
            {
                Erase(sector);
            }
            else
            {
                status |= EraseSequenceError;
            }
        }

        private void Erase(int sector)
        {
            flash.Erase(sector);
            var size = F746_Flash.SectorSize(sector);
            Finish(size == 0x8000 ? 250000ul : size == 0x20000 ? 500000ul : 1000000ul);
        }

        // The core, which fetches from this flash, stands still.
        private void Finish(ulong microseconds)
        {
            operations++;
            Stall(microseconds);
            if(operations == failsAt)
            {
                powerFailed = true;
                Stall(PowerFailureMicroseconds);
                rcc.RequestReset(ResetCause.PowerOn);
            }
        }

        private void Stall(ulong microseconds)
        {
            ICPU cpu;
            if(machine.SystemBus.TryGetCurrentCPU(out cpu))
            {
                ((BaseCPU)cpu).SkipTime(TimeInterval.FromMicroseconds(microseconds));
            }
        }

        private uint accessControl;
        private uint status;
        private uint control;
        private int keysSeen;
        private long operations;
        private long failsAt;
        private bool powerFailed;

        private readonly IMachine machine;
        private readonly F746_Flash flash;
        private readonly F746_RCC rcc;

        private static readonly uint[] Keys = { 0x45670123, 0xCDEF89AB };

        private const uint Program = 1u << 0;
        private const uint SectorErase = 1u << 1;
        private const uint MassErase = 1u << 2;
        private const uint Start = 1u << 16;
        private const uint Lock = 1u << 31;
        private const uint ParallelismError = 1u << 6;
        private const uint EraseSequenceError = 1u << 7;
        private const uint StatusClearedByWriting = 0xF3;
        private const uint OptionControlAfterReset = 0xC0FFAAFD;
        private const ulong ProgramMicroseconds = 16; // STM32F746 data sheet, table 53, as are the times of an erase
        private const ulong PowerFailureMicroseconds = 10000; // longer than Renode takes to carry out a reset

        private enum Registers : long
        {
            AccessControl = 0x00,
            Key = 0x04,
            OptionKey = 0x08,
            Status = 0x0C,
            Control = 0x10,
            OptionControl = 0x14,
        }
    }
}
